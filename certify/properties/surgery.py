"""Cutting and rearranging calls: the metamorphic half of the properties."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attnspec.certify.trials.claim import call_rng
from attnspec.pyspec import AttentionCall, Dropout, Visibility
from attnspec.pyspec.calls.formats import round_to

# More rows or keys than one tile of 32 has.
SEVERAL_TILES = 40


def _along(array: np.ndarray, axis: int, index: np.ndarray) -> np.ndarray:
    """Take along an axis of a broadcastable array: an axis of length one stands for every index."""
    return array if array.shape[axis] == 1 else np.take(array, index, axis=axis)


def plain_encoding(call: AttentionCall) -> AttentionCall:
    """The call told by an explicit mask: cutting a causal call leaves a mask that no flag describes."""
    if call.encoding in ("causal_flag", "none"):
        return call.but(encoding="bool" if call.bias is None else "additive")
    return call


def with_mask(call: AttentionCall, mask: np.ndarray) -> AttentionCall:
    """The call with another visibility mask, for every query, told explicitly."""
    return plain_encoding(call).but(
        visibility=Visibility(np.ascontiguousarray(mask), empty_rows=call.visibility.empty_rows)
    )


def with_least_mask(call: AttentionCall, mask: np.ndarray) -> AttentionCall:
    """The call with another mask, of length 1 along every axis that it does not vary along, also in memory: kernels
    read masks of one row, one column or one head by other paths than whole ones.
    """
    return with_mask(call, squeezed(mask)).but(layout=replace(call.layout, mask="contiguous"))


def squeezed(mask: np.ndarray) -> np.ndarray:
    """The mask with length 1 along every axis that it does not vary along."""
    for axis, length in enumerate(mask.shape):
        first = np.take(mask, [0], axis=axis) if length > 1 else mask
        mask = first if np.array_equal(np.broadcast_to(first, mask.shape), mask) else mask
    return mask


def take_queries(call: AttentionCall, rows: np.ndarray) -> AttentionCall:
    """Only those query rows, in that order."""
    call = plain_encoding(call)
    v = call.visibility
    return call.but(
        query=call.query[:, :, rows],
        grad_output=None if call.grad_output is None else call.grad_output[:, :, rows],
        bias=None if call.bias is None else _along(call.bias, 2, rows),
        visibility=Visibility(
            _along(v.mask, 2, rows), None if v.query_valid is None else v.query_valid[:, rows], v.empty_rows
        ),
        dropout=_dropout(call, 2, rows),
    )


def take_keys(call: AttentionCall, keys: np.ndarray) -> AttentionCall:
    """Only those keys, in that order."""
    call = plain_encoding(call)
    return call.but(
        key=call.key[:, :, keys],
        value=call.value[:, :, keys],
        bias=None if call.bias is None else _along(call.bias, 3, keys),
        visibility=replace(call.visibility, mask=_along(call.visibility.mask, 3, keys)),
        dropout=_dropout(call, 3, keys),
    )


def over_several_tiles(call: AttentionCall, *, queries: bool = False) -> AttentionCall:
    """The call with its keys repeated until there are more than small tiles hold, and its queries where asked."""
    a = call.axes
    if 0 < a.keys < SEVERAL_TILES:
        call = take_keys(call, np.arange(SEVERAL_TILES) % a.keys)
    if queries and 0 < a.queries < SEVERAL_TILES:
        call = take_queries(call, np.arange(SEVERAL_TILES) % a.queries)
    return call


def _dropout(call: AttentionCall, axis: int, index: np.ndarray) -> Dropout | None:
    if call.dropout is None:
        return None
    return replace(call.dropout, multiplier=_along(call.dropout.multiplier, axis, index))


def keys_hidden_from_all(call: AttentionCall) -> np.ndarray:
    """[B, Hkv, K] boolean: keys that no query head reading them may see from any row."""
    a = call.axes
    seen = np.zeros((a.batch, a.key_heads, a.keys), dtype=bool)
    any_row = np.asarray(call.visible.any(axis=2))
    for head, target in enumerate(call.head_map):
        seen[:, target] |= any_row[:, head]
    return ~seen


def garbage(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Finite values of mixed sizes that would be noticed if they leaked."""
    size = rng.choice([1.0, 30.0, 1000.0], size=shape)
    return round_to(dtype, size * (1.0 + np.abs(rng.standard_normal(shape))))


def whole_bias(call: AttentionCall) -> AttentionCall:
    """A bias of small integers, so that shifting it by an integer is exact in every format."""
    rng = call_rng(call, "bias")
    return call.but(bias=rng.integers(-4, 5, call.score_shape).astype(np.float64), encoding="additive")
