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
    values = {name: _in(value) for name, value in data.items()}
    for name in ("call", "against", "other", "claimed_as", "bounds_of"):
        if name in values and not isinstance(values[name], AttentionCall):
            raise TrialError(f"{name} of a trial: expected a call")
    return Trial(**values)


def _same(value: Any, plain: Any) -> bool:
    # An empty tuple of tensors asks for none of them, where None asks for all.
    return value is plain or (isinstance(value, type(plain)) and not value and not plain)


def _out(value: Any) -> Any:
    if isinstance(value, AttentionCall):
        return {"call": msgspec.json.decode(call_to_json(value))}
    if isinstance(value, np.ndarray):
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
    if type(value).__name__ in EXPECTATIONS:
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
        return {k: _in(v) for k, v in value["map"].items()}
    if "float" in value:
        return float(value["float"])
    kind = value.get("expect")
    if kind not in EXPECTATIONS:
        # Some stand beside the property that they are for.
        registered()
    if kind not in EXPECTATIONS:
        raise TrialError(f"unknown expectation {kind!r}: expected one of {', '.join(sorted(EXPECTATIONS))}")
    try:
        return EXPECTATIONS[kind](**{k: _in(v) for k, v in value.items() if k != "expect"})
    except TypeError as error:
        raise TrialError(f"expectation {kind}: {error}") from error


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
