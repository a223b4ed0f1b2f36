"""Calls as JSON: every number a bit pattern, so that nothing is lost; reading executes nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any

import msgspec
import numpy as np

from attnspec.pyspec.calls.call import AttentionCall, Backend, CallError, Dropout, Layout, OwnDropout, Visibility
from attnspec.pyspec.calls.features import PARTS, Part, stored
from attnspec.pyspec.calls.formats import from_hex, to_hex
from attnspec.pyspec.calls.score import FAMILY_KINDS, Family

FORMAT = "attnspec.call/2"
OLD_FORMATS = ("attnspec.call/1",)
_POLARITY = "true_means_visible"


class Floats(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tensor: shape, number format, and one hex word per entry, in row-major order, rows apart by newlines."""

    shape: list[int]
    format: str
    words: str


class Bits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A boolean tensor: shape and 0/1 digits in row-major order."""

    shape: list[int]
    digits: str


def call_to_json(call: AttentionCall) -> str:
    """The call as an indented JSON document, of the parts that it has."""
    document: dict[str, Any] = {"format": FORMAT}
    for part, value in stored(call):
        root, _, leaf = part.path.partition(".")
        written = _written(call.dtype, part.kind, value)
        if leaf:
            document.setdefault(root, {})[leaf] = written
        else:
            document[root] = written
    document["visibility"]["polarity"] = _POLARITY
    return msgspec.json.format(msgspec.json.encode(document), indent=1).decode()


def _written(dtype: str, kind: str, value: Any) -> Any:
    if kind in ("numbers", "reals"):
        return _floats(dtype if kind == "numbers" else "float64", value)
    if kind == "bits":
        return Bits(list(value.shape), "".join("01"[int(x)] for x in value.ravel()))
    return float(value).hex() if kind == "number" else value


def _floats(dtype: str, a: np.ndarray) -> Floats:
    words = to_hex(dtype, a)
    width = max(a.shape[-1], 1)
    rows = [" ".join(words[i : i + width]) for i in range(0, len(words), width)]
    return Floats(list(a.shape), dtype, "\n".join(rows))


def call_from_json(text: str | bytes) -> AttentionCall:
    """The call in a JSON document; a CallError names the field that is wrong."""
    try:
        document = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CallError(f"not an attnspec call: {error}") from error
    found = document.pop("format", None)
    if found in OLD_FORMATS:
        raise CallError(f"format = {found!r}: written by an older version: run the certify command again")
    if found != FORMAT:
        raise CallError(f"format = {found!r}: this version reads {FORMAT!r}")
    visibility = document.get("visibility")
    polarity = visibility.pop("polarity", None) if isinstance(visibility, dict) else None
    if polarity != _POLARITY:
        raise CallError(f"visibility.polarity = {polarity!r}: expected {_POLARITY!r}")
    given = {name: _root(name, value) for name, value in document.items()}
    for field in fields(AttentionCall):
        if field.name not in given and field.default is MISSING and field.default_factory is MISSING:
            raise CallError(f"{field.name}: missing")
    return AttentionCall(**given)


def _root(name: str, written: Any) -> Any:
    """A field of the call from what is written of it."""
    parts = {part.path: part for part in PARTS if part.root == name}
    if not parts:
        raise CallError(f"{name}: no field of a call")
    if name in parts:
        return _read(parts[name], written)
    if not isinstance(written, dict):
        raise CallError(f"{name} = {written!r}: expected an object")
    leaves = {}
    for leaf, value in written.items():
        if f"{name}.{leaf}" not in parts:
            raise CallError(f"{name}.{leaf}: no field of a call")
        leaves[leaf] = _read(parts[f"{name}.{leaf}"], value)
    try:
        return _RECORDS[name](**leaves)
    except TypeError as error:
        raise CallError(f"{name}: {error}") from error


def _family(name: str = "dot", **parameters: Any) -> Family:
    if name not in FAMILY_KINDS:
        raise CallError(f"score.name = {name!r}: expected one of {', '.join(FAMILY_KINDS)}")
    return FAMILY_KINDS[name](**parameters)


_RECORDS: Mapping[str, Callable[..., Any]] = {
    "visibility": Visibility,
    "dropout": Dropout,
    "own_dropout": OwnDropout,
    "layout": Layout,
    "backend": Backend,
    "score": _family,
}
_WRITTEN_AS: Mapping[str, Any] = {
    "numbers": Floats,
    "reals": Floats,
    "bits": Bits,
    "number": str,
    "whole": int,
    "switch": bool,
    "name": str,
    "heads": list[int],
    "labels": dict[str, str],
}


def _read(part: Part, written: Any) -> Any:
    try:
        value = msgspec.convert(written, type=_WRITTEN_AS[part.kind])
    except msgspec.ValidationError as error:
        raise CallError(f"{part.path}: {error}") from error
    if isinstance(value, Floats):
        return _array(part.path, value)
    if isinstance(value, Bits):
        return _bool_array(part.path, value)
    if part.kind == "number":
        return _number(part.path, value)
    return tuple(value) if part.kind == "heads" else value


def _array(field: str, f: Floats) -> np.ndarray:
    try:
        if any(n < 0 for n in f.shape):
            raise ValueError(f"shape {f.shape} has a negative length")
        return from_hex(f.format, f.words.split(), tuple(f.shape))
    except ValueError as error:
        raise CallError(f"{field}: {error}") from error


def _bool_array(field: str, b: Bits) -> np.ndarray:
    # math.prod, since numpy's product wraps around.
    if any(n < 0 for n in b.shape) or len(b.digits) != math.prod(b.shape) or set(b.digits) - {"0", "1"}:
        raise CallError(f"{field}: expected {math.prod(b.shape)} digits 0 or 1 for shape {b.shape}")
    try:
        return np.array([c == "1" for c in b.digits], dtype=bool).reshape(b.shape)
    except ValueError as error:
        raise CallError(f"{field}: shape {b.shape}: {error}") from error


def _number(field: str, text: str) -> float:
    try:
        return float.fromhex(text)
    except (ValueError, OverflowError) as error:
        raise CallError(f"{field} = {text!r}: expected a hexadecimal float such as 0x1.8p+0") from error
