"""Trials as JSON: every number bit for bit, every array in full; reading executes nothing."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import msgspec
import numpy as np

from attnspec.certify.trials.property import registered
from attnspec.certify.trials.trial import EXPECTATIONS, Trial
from attnspec.pyspec import AttentionCall, CallError, call_from_json, call_to_json

# Number types that an array of a trial may have.
_TYPES = ("float64", "float32", "float16", "bool", "int64")


# Types of a trial's fields that are neither calls nor expectations.
_PLAIN: dict[str, Any] = {
    "raw": dict[str, np.ndarray],
    "views": dict[str, tuple[tuple[int, np.ndarray], ...]],
    "tensors": tuple[str, ...] | None,
    "where": dict[str, np.ndarray],
    "tanh_error": float,
}


class TrialError(ValueError):
    """A document is no trial; the message says why."""


def trial_to_data(trial: Trial) -> dict[str, Any]:
    """The trial as JSON values; fields that say nothing are left out."""
    given = {f.name: getattr(trial, f.name) for f in fields(Trial)}
    plain = Trial(trial.call)
    return {n: _out(v) for n, v in given.items() if n == "call" or not _same(v, getattr(plain, n))}


def trial_from_data(data: Any) -> Trial:
    """The trial in JSON values. Raises TrialError or CallError naming what is wrong."""
    known = {f.name for f in fields(Trial)}
    if not isinstance(data, dict) or "call" not in data:
        raise TrialError("a trial is an object with a call")
    unknown = sorted(set(data) - known)
    if unknown:
        raise TrialError(f"unknown field {unknown[0]!r} of a trial: expected some of {', '.join(sorted(known))}")
    return Trial(**{name: _field(name, value) for name, value in data.items()})


def _field(name: str, data: Any) -> Any:
    """A field of a trial, of the type that it must have."""
    try:
        value = _in(data)
        if name == "expect":
            if isinstance(value, tuple) and all(type(e) in EXPECTATIONS.values() for e in value):
                return value
            raise TrialError("expected a list of expectations")
        if name in _PLAIN:
            return msgspec.convert(value, _PLAIN[name])
        if isinstance(value, AttentionCall):
            return value
        raise TrialError("expected a call")
    except (TrialError, msgspec.ValidationError, RecursionError) as error:
        raise TrialError(f"{name} of a trial: {error}") from error


def _same(value: Any, plain: Any) -> bool:
    # An empty tuple of tensors asks for none of them, where None asks for all.
    return value is plain or (isinstance(value, type(plain)) and not value and not plain)


def _out(value: Any) -> Any:
    if isinstance(value, AttentionCall):
        return {"call": msgspec.json.decode(call_to_json(value))}
    if isinstance(value, np.ndarray):
        if value.dtype.name not in _TYPES:
            raise TypeError(f"an array of dtype {value.dtype.name}: expected one of {', '.join(_TYPES)}")
        array = np.ascontiguousarray(value)
        words = base64.b64encode(array.tobytes()).decode()
        return {"array": words, "dtype": array.dtype.name, "shape": list(value.shape)}
    if isinstance(value, Mapping):
        return {"map": {str(k): _out(v) for k, v in value.items()}}
    if isinstance(value, (tuple, list)):
        return [_out(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(float(value))}
    if isinstance(value, np.generic):
        return _out(value.item())
    if EXPECTATIONS.get(type(value).__name__) is type(value):
        return {"expect": type(value).__name__, **{f.name: _out(getattr(value, f.name)) for f in fields(value)}}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{value!r} cannot be part of a trial: register its class with attnspec.certify.trials.recorded")


def _in(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_in(v) for v in value)
    if not isinstance(value, dict):
        return value
    if "call" in value:
        return call_from_json(msgspec.json.encode(value["call"]))
    if "array" in value:
        return _array(value)
    if "map" in value:
        return {k: _in(v) for k, v in _object(value["map"]).items()}
    if "float" in value:
        if value["float"] not in ("nan", "inf", "-inf"):
            raise TrialError(f"float {value['float']!r}: expected nan, inf or -inf")
        return float(value["float"])
    kind = str(value.get("expect"))
    if kind not in EXPECTATIONS:
        # Some stand beside the property that they are for.
        registered()
    if kind not in EXPECTATIONS:
        raise TrialError(f"unknown expectation {kind!r}: expected one of {', '.join(sorted(EXPECTATIONS))}")
    given, known = {k: _in(v) for k, v in value.items() if k != "expect"}, fields(EXPECTATIONS[kind])
    unknown = sorted(set(given) - {f.name for f in known})
    if unknown:
        raise TrialError(f"unknown field {unknown[0]!r} of expectation {kind}")
    try:
        return msgspec.convert(given, EXPECTATIONS[kind])
    except msgspec.ValidationError as error:
        raise TrialError(f"expectation {kind}: {error}") from error


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TrialError(f"{value!r}: expected an object")
    return value


def _array(value: dict[str, Any]) -> np.ndarray:
    dtype, shape = value.get("dtype"), value.get("shape")
    if dtype not in _TYPES or not isinstance(shape, list) or not all(isinstance(n, int) and n >= 0 for n in shape):
        raise TrialError(f"an array of dtype {dtype!r} and shape {shape!r}: expected one of {', '.join(_TYPES)}")
    try:
        found = np.frombuffer(base64.b64decode(value["array"], validate=True), dtype=dtype)
    except (TypeError, ValueError, binascii.Error) as error:
        raise TrialError(f"an array of shape {shape}: {error}") from error
    if found.size != math.prod(shape):
        raise TrialError(f"an array of shape {shape} with {found.size} entries: expected {math.prod(shape)}")
    return found.reshape(shape)


__all__ = ["CallError", "TrialError", "trial_from_data", "trial_to_data"]
