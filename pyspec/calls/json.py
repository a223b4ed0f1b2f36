"""Calls as JSON: every number a bit pattern, so that nothing is lost; reading executes nothing."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np

from attnspec.pyspec.calls.call import AttentionCall, Backend, CallError, Dropout, Layout, Scale, Visibility
from attnspec.pyspec.calls.formats import from_hex, to_hex

FORMAT = "attnspec.call/1"


class Floats(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tensor: shape, number format, and one hex word per entry, in row-major order, rows apart by newlines."""

    shape: list[int]
    format: str
    words: str


class Bits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A boolean tensor: shape and 0/1 digits in row-major order."""

    shape: list[int]
    digits: str


class WireVisibility(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    mask: Bits
    query_valid: Bits | None
    empty_rows: str
    polarity: str = "true_means_visible"


class WireScale(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    value: str | None
    placement: str


class WireDropout(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    probability: str
    multiplier: Floats
    training: bool
    location: str
    returned_weights: str


class WireCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The JSON document of one call. What came later has a default and is left out where it is not used."""

    format: str
    dtype: str
    query: Floats
    key: Floats
    value: Floats
    visibility: WireVisibility
    head_map: list[int]
    bias: Floats | None
    scale: WireScale
    dropout: WireDropout | None
    grad_output: Floats | None
    encoding: str
    layout: dict[str, str]
    ledger: str | None
    backend: dict[str, str]
    origin: dict[str, str]
    softcap: str | None = None
    sink: Floats | None = None


def _floats(dtype: str, a: np.ndarray | None) -> Floats | None:
    if a is None:
        return None
    words = to_hex(dtype, a)
    width = max(a.shape[-1], 1)
    rows = [" ".join(words[i : i + width]) for i in range(0, len(words), width)]
    return Floats(list(a.shape), dtype, "\n".join(rows))


def _bits(a: np.ndarray | None) -> Bits | None:
    return None if a is None else Bits(list(a.shape), "".join("01"[int(x)] for x in a.ravel()))


def _array(field: str, f: Floats | None) -> np.ndarray | None:
    if f is None:
        return None
    try:
        if any(n < 0 for n in f.shape):
            raise ValueError(f"shape {f.shape} has a negative length")
        return from_hex(f.format, f.words.split(), tuple(f.shape))
    except ValueError as error:
        raise CallError(f"{field}: {error}") from error


def _bool_array(field: str, b: Bits | None) -> np.ndarray | None:
    if b is None:
        return None
    # math.prod, since numpy's product wraps around.
    if any(n < 0 for n in b.shape) or len(b.digits) != math.prod(b.shape) or set(b.digits) - {"0", "1"}:
        raise CallError(f"{field}: expected {math.prod(b.shape)} digits 0 or 1 for shape {b.shape}")
    try:
        return np.array([c == "1" for c in b.digits], dtype=bool).reshape(b.shape)
    except ValueError as error:
        raise CallError(f"{field}: shape {b.shape}: {error}") from error


def _number(field: str, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return float.fromhex(text)
    except (ValueError, OverflowError) as error:
        raise CallError(f"{field} = {text!r}: expected a hexadecimal float such as 0x1.8p+0") from error


def _wire(call: AttentionCall) -> WireCall:
    v, d = call.visibility, call.dropout
    tensors: dict[str, Any] = {n: _floats(call.dtype, getattr(call, n)) for n in ("query", "key", "value")}
    mask = _bits(v.mask)
    assert mask is not None
    dropout = None
    if d is not None:
        multiplier = _floats("float64", d.multiplier)
        assert multiplier is not None
        dropout = WireDropout(float(d.probability).hex(), multiplier, d.training, d.location, d.returned_weights)
    return WireCall(
        format=FORMAT,
        dtype=call.dtype,
        visibility=WireVisibility(mask, _bits(v.query_valid), v.empty_rows),
        head_map=list(call.head_map),
        bias=_floats(call.dtype, call.bias),
        scale=WireScale(None if call.scale.value is None else call.scale.value.hex(), call.scale.placement),
        dropout=dropout,
        grad_output=_floats(call.dtype, call.grad_output),
        encoding=call.encoding,
        layout={n: getattr(call.layout, n) for n in ("query", "key", "value", "mask")},
        ledger=call.ledger,
        backend={n: getattr(call.backend, n) for n in ("requested", "observed", "materialised_weights")},
        origin=dict(call.origin),
        softcap=None if call.softcap is None else float(call.softcap).hex(),
        sink=_floats(call.dtype, call.sink),
        **tensors,
    )


def call_to_json(call: AttentionCall) -> str:
    """The call as an indented JSON document."""
    return msgspec.json.format(msgspec.json.encode(_wire(call)), indent=1).decode()


def _record(field: str, kind: type, given: dict[str, str]) -> Any:
    try:
        return kind(**given)
    except TypeError as error:
        raise CallError(f"{field}: {error}") from error


def call_from_json(text: str | bytes) -> AttentionCall:
    """The call in a JSON document; a CallError names the field that is wrong."""
    try:
        wire = msgspec.json.decode(text, type=WireCall)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CallError(f"not an attnspec call: {error}") from error
    if wire.format != FORMAT:
        raise CallError(f"format = {wire.format!r}: this version reads {FORMAT!r}")
    if wire.visibility.polarity != "true_means_visible":
        raise CallError(f"visibility.polarity = {wire.visibility.polarity!r}: expected 'true_means_visible'")
    mask = _bool_array("visibility.mask", wire.visibility.mask)
    assert mask is not None
    dropout = None
    if wire.dropout is not None:
        w = wire.dropout
        p, z = _number("dropout.probability", w.probability), _array("dropout.multiplier", w.multiplier)
        assert p is not None
        assert z is not None
        dropout = Dropout(p, z, w.training, w.location, w.returned_weights)
    tensors: dict[str, Any] = {
        n: _array(n, getattr(wire, n)) for n in ("query", "key", "value", "bias", "grad_output", "sink")
    }
    return AttentionCall(
        dtype=wire.dtype,
        visibility=Visibility(
            mask,
            _bool_array("visibility.query_valid", wire.visibility.query_valid),
            wire.visibility.empty_rows,
        ),
        head_map=tuple(wire.head_map),
        scale=Scale(_number("scale.value", wire.scale.value), wire.scale.placement),
        dropout=dropout,
        encoding=wire.encoding,
        layout=_record("layout", Layout, wire.layout),
        ledger=wire.ledger,
        backend=_record("backend", Backend, wire.backend),
        origin=wire.origin,
        softcap=_number("softcap", wire.softcap),
        **tensors,
    )
