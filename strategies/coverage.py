"""Coverage: what a call exercises, read off the call itself and not off its plan."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from attnspec.pyspec.calls.call import AttentionCall
from attnspec.pyspec.calls.features import MODIFIERS
from attnspec.strategies.masks import MASK_AXES


def traits(call: AttentionCall) -> frozenset[str]:
    """Names of what the call exercises: sizes against tile edges, broadcast and varying axes, logits, empty rows."""
    return frozenset(name for name, hit in _traits(call) if hit)


def _traits(call: AttentionCall) -> Iterator[tuple[str, bool]]:
    a = call.axes
    yield f"dtype {call.dtype}", True
    yield f"encoding {call.encoding}", True
    for name in ("query", "key", "value"):
        yield f"layout {getattr(call.layout, name)}", True
    yield f"mask layout {call.layout.mask}", True
    yield f"queries {a.queries}", True
    yield f"keys {a.keys}", True
    for rest in (0, 1, 15):
        yield f"keys mod 16 = {rest}", a.keys > 0 and a.keys % 16 == rest
    yield "queries ≠ keys", a.queries != a.keys
    yield "value width ≠ key width", a.key_width != a.value_width
    yield "key width mod 8 ≠ 0", a.key_width % 8 != 0
    yield "query heads ≠ key heads", a.query_heads != a.key_heads
    yield "unused key head", len(set(call.head_map)) < a.key_heads
    yield "scale given", call.scale is not None
    yield "gradient", call.grad_output is not None
    yield "bias", call.bias is not None
    for name in MODIFIERS:
        yield name, getattr(call, name) is not None
    yield "zero size", a.any_zero
    for name, stored in (("mask", call.visibility.mask), ("bias", call.bias)):
        for axis, letter in enumerate(MASK_AXES):
            if stored is not None and call.score_shape[axis] > 1:
                yield f"{name} broadcast along {letter}", stored.shape[axis] == 1
                yield f"{name} varies along {letter}", _varies(stored, axis)
    yield from _rows(call)
    yield from _logits(call)


def _varies(array: np.ndarray, axis: int) -> bool:
    return array.shape[axis] > 1 and bool((array != np.take(array, [0], axis=axis)).any())


def _rows(call: AttentionCall) -> Iterator[tuple[str, bool]]:
    visible = call.visible
    empty = np.asarray(~visible.any(axis=-1))
    full = np.asarray(visible.all(axis=-1))
    yield "hidden key", not visible.all()
    yield "empty row", bool(empty.any())
    beside = (empty[:, :, 1:] & full[:, :, :-1]) | (empty[:, :, :-1] & full[:, :, 1:])
    yield "empty row beside a full one", call.axes.keys > 0 and bool(beside.any())
    for tile in (16, 32, 64):
        hidden = ~visible[..., :tile].any(axis=-1) & visible[..., tile:].any(axis=-1)
        yield f"first {tile} keys hidden, a later one visible", bool(hidden.any())
    if call.bias is not None:
        yield "bias on a hidden key", bool((~visible & (call.bias != 0)).any())
    multiplier = call.multiplier
    if multiplier is not None:
        yield "dropout", True
        lost = visible.any(axis=-1) & ~(visible & (multiplier != 0)).any(axis=-1)
        yield "dropout loses every key of a row", bool(lost.any())


def _logits(call: AttentionCall) -> Iterator[tuple[str, bool]]:
    visible = call.visible
    if not visible.any():
        return
    heads = np.array(call.head_map, dtype=np.intp)
    scores = call.scale_value * (call.query @ call.key[:, heads].swapaxes(-1, -2))
    if call.bias is not None:
        scores = scores + call.bias
    yield "|logit| > 90", bool((np.abs(scores[visible]) > 90).any())
    top = np.where(visible, scores, -np.inf).max(axis=-1)
    # The LSE exceeds the largest logit by at most log K.
    yield "LSE < -88.7", bool((np.isfinite(top) & (top + np.log(visible.shape[-1]) < -88.7)).any())
    several = visible.sum(axis=-1) > 1
    tied = (visible & (scores == top[..., None])).sum(axis=-1) > 1
    yield "tied logits", bool((several & tied).any())
