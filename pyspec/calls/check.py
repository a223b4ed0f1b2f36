"""The contract of `AttentionCall`: each check names the field, the value found and the mend."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from attnspec.pyspec.calls import call as records
from attnspec.pyspec.calls.formats import FORMATS, is_representable
from attnspec.pyspec.calls.score import check_score

if TYPE_CHECKING:
    from attnspec.pyspec.calls.call import AttentionCall


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise records.CallError(message)


def _one_of(field: str, value: object, options: tuple[str, ...]) -> None:
    _require(value in options, f"{field} = {value!r}: expected one of {', '.join(options)}")


def _tensor(field: str, array: object, shape: tuple[int, ...], dtype: str, *, broadcast: bool = False) -> None:
    _require(isinstance(array, np.ndarray) and array.dtype == np.float64, f"{field} must be a float64 numpy array")
    assert isinstance(array, np.ndarray)
    _shape(field, array, shape, broadcast=broadcast)
    finite = np.isfinite(array)
    if not finite.all():
        where = tuple(int(i) for i in np.argwhere(~finite)[0])
        _require(False, f"{field}{list(where)} = {array[where]}: expected a finite number")
    exact = is_representable(dtype, array)
    if not exact.all():
        where = tuple(int(i) for i in np.argwhere(~exact)[0])
        _require(
            False,
            f"{field}{list(where)} = {array[where]!r} is not a value of {dtype}: "
            "round it first with attnspec.pyspec.calls.formats.round_to",
        )


def _shape(field: str, array: np.ndarray, shape: tuple[int, ...], *, broadcast: bool) -> None:
    found, wanted = list(array.shape), list(shape)
    if not broadcast:
        _require(found == wanted, f"{field} has shape {found}: expected {wanted}")
        return
    fits = array.ndim == len(shape) and all(n in (1, m) for n, m in zip(found, wanted, strict=True))
    _require(fits, f"{field} has shape {found}: expected four axes that broadcast to {wanted}")


def check(call: AttentionCall) -> None:
    """Raise CallError at the first field that breaks the contract."""
    _require(call.dtype in FORMATS, f"dtype = {call.dtype!r}: expected one of {', '.join(FORMATS)}")
    for name in ("query", "key", "value"):
        array = getattr(call, name)
        _require(
            isinstance(array, np.ndarray) and array.ndim == 4,
            f"{name} must be a numpy array with four axes [batch, heads, length, width]",
        )
    b, hq, q, dk = call.query.shape
    _, hkv, k, _ = call.key.shape
    dv = call.value.shape[-1]
    _tensor("query", call.query, (b, hq, q, dk), call.dtype)
    _tensor("key", call.key, (b, hkv, k, dk), call.dtype)
    _tensor("value", call.value, (b, hkv, k, dv), call.dtype)
    if call.grad_output is not None:
        _tensor("grad_output", call.grad_output, (b, hq, q, dv), call.dtype)
    if call.bias is not None:
        _tensor("bias", call.bias, (b, hq, q, k), call.dtype, broadcast=True)
    _check_heads(call, hq, hkv)
    _check_visibility(call, (b, hq, q, k))
    _check_scale(call)
    _check_softcap(call.softcap)
    if call.sink is not None:
        _tensor("sink", call.sink, (hq,), call.dtype)
    if call.dropout is not None:
        _check_dropout(call, (b, hq, q, k))
    _check_own_dropout(call)
    _check_encoding(call)
    for name in ("query", "key", "value"):
        _one_of(f"layout.{name}", getattr(call.layout, name), records.LAYOUTS)
    _one_of("layout.mask", call.layout.mask, records.MASK_LAYOUTS)
    check_score(call)


def _check_heads(call: AttentionCall, query_heads: int, key_heads: int) -> None:
    found = call.head_map
    _require(
        len(found) == query_heads,
        f"head_map has {len(found)} entries: expected one for each of {query_heads} query heads",
    )
    for h, target in enumerate(found):
        _require(
            isinstance(target, int) and 0 <= target < key_heads,
            f"head_map[{h}] = {target!r}: expected a key head in 0..{key_heads - 1}",
        )


def _check_visibility(call: AttentionCall, shape: tuple[int, int, int, int]) -> None:
    v = call.visibility
    _require(
        isinstance(v.mask, np.ndarray) and v.mask.dtype == np.bool_,
        "visibility.mask must be a boolean numpy array, True where the key is visible",
    )
    _shape("visibility.mask", v.mask, shape, broadcast=True)
    if v.query_valid is not None:
        _require(v.query_valid.dtype == np.bool_, "visibility.query_valid must be boolean")
        _shape("visibility.query_valid", v.query_valid, (shape[0], shape[2]), broadcast=False)
    _one_of("visibility.empty_rows", v.empty_rows, records.EMPTY_ROW_POLICIES)
    if v.empty_rows == "reject":
        empty = ~call.visible.any(axis=-1)
        if empty.any():
            b, h, i = (int(n) for n in np.argwhere(empty)[0])
            _require(False, f"row [batch {b}, head {h}, query {i}] sees no key and empty_rows is 'reject'")
    if v.empty_rows == "sanitize_then_zero_invalid_query":
        _require_keys_of_real_queries(v, shape)
    if v.empty_rows == "tested_backend_contract":
        _require(
            call.backend.requested != "unspecified",
            "backend.requested = 'unspecified': a tested backend contract names the backend it was tested on",
        )


def _require_keys_of_real_queries(v: records.Visibility, shape: tuple[int, int, int, int]) -> None:
    lost = ~np.broadcast_to(v.mask, shape).any(axis=-1)
    if v.query_valid is not None:
        lost = lost & v.query_valid[:, None, :]
    if lost.any():
        b, h, i = (int(n) for n in np.argwhere(lost)[0])
        _require(
            False,
            f"row [batch {b}, head {h}, query {i}] is a real query and sees no key: a temporary key never makes it "
            "legal; show it a key, or mark it in visibility.query_valid as not real",
        )


def _check_scale(call: AttentionCall) -> None:
    value = call.scale.value
    _require(
        value is None or (isinstance(value, float) and math.isfinite(value)),
        f"scale.value = {value!r}: expected a finite float, or None for key_width ** -0.5",
    )
    _one_of("scale.placement", call.scale.placement, records.SCALE_PLACEMENTS)


def _check_softcap(cap: object) -> None:
    _require(
        cap is None or (isinstance(cap, float) and math.isfinite(cap) and cap > 0.0),
        f"softcap = {cap!r}: expected a finite float above 0, or None for no cap",
    )


def _check_dropout(call: AttentionCall, shape: tuple[int, int, int, int]) -> None:
    d = call.dropout
    assert d is not None
    _require(0.0 <= d.probability < 1.0, f"dropout.probability = {d.probability!r}: expected 0 <= p < 1")
    _require(d.location == "after_softmax", f"dropout.location = {d.location!r}: expected 'after_softmax'")
    _one_of("dropout.returned_weights", d.returned_weights, ("none", "before_dropout", "after_dropout"))
    _require(
        isinstance(d.multiplier, np.ndarray) and d.multiplier.dtype == np.float64,
        "dropout.multiplier must be a float64 numpy array",
    )
    _shape("dropout.multiplier", d.multiplier, shape, broadcast=True)
    _require(
        bool(np.isfinite(d.multiplier).all()) and bool((d.multiplier >= 0).all()),
        "dropout.multiplier must be finite and not negative",
    )


def _check_own_dropout(call: AttentionCall) -> None:
    own = call.own_dropout
    if own is None:
        return
    _require(0.0 <= own.probability < 1.0, f"own_dropout.probability = {own.probability!r}: expected 0 <= p < 1")
    _require(own.seed >= 0, f"own_dropout.seed = {own.seed!r}: expected an integer of 0 or more")
    _require(call.dropout is None, "own_dropout with dropout: the subject draws a multiplier or is given one, not both")


def _check_encoding(call: AttentionCall) -> None:
    _one_of("encoding", call.encoding, records.MASK_ENCODINGS)
    if call.encoding == "none":
        _require(bool(call.visible.all()), "encoding = 'none' hides nothing, but the mask hides a key")
        _require(call.bias is None, "encoding = 'none' carries no bias: use 'additive'")
    if call.encoding == "causal_flag":
        from attnspec.pyspec.visibility import upper_left

        _, _, q, k = call.score_shape
        expected = np.broadcast_to(upper_left(q, k), call.score_shape)
        _require(
            bool((call.visible == expected).all()),
            "encoding = 'causal_flag' means the upper-left causal mask, but the mask differs",
        )
        _require(call.bias is None, "encoding = 'causal_flag' carries no bias: use 'additive'")
    if call.encoding == "bool":
        _require(call.bias is None, "encoding = 'bool' carries no bias: use 'additive'")
