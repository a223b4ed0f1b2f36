"""Part of a call: the same call with only some positions of one axis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from attnspec.pyspec.calls.call import AttentionCall
from attnspec.pyspec.calls.features import arrays, length
from attnspec.pyspec.calls.fields import Axes
from attnspec.pyspec.visibility import upper_left

CALL_AXES = tuple(f.name for f in fields(Axes))


def take(call: AttentionCall, axis: str, positions: Sequence[int] | np.ndarray) -> AttentionCall:
    """The call at these positions of an axis, in this order; a position may come more than once.

    Every array of the feature table that has the axis is cut; where length 1 stands for every position it stays. A
    causal flag goes with the causal mask of the new lengths (`with_explicit_mask` first, where the cut mask is meant).
    Raises CallError when a key head still in use would go, ValueError for an axis that a call has not.
    """
    if axis not in CALL_AXES:
        raise ValueError(f"axis = {axis!r}: expected one of {', '.join(CALL_AXES)}")
    kept = np.asarray(positions, dtype=np.intp)
    changes: dict[str, Any] = {}
    for part, array in arrays(call):
        cut = array
        for at, name in enumerate(part.axes):
            if name == axis and not (name in part.shared and cut.shape[at] == 1):
                cut = np.ascontiguousarray(np.take(cut, kept, axis=at))
        if cut is not array:
            changes[part.path] = cut
    if call.encoding == "causal_flag":
        sizes = {name: kept.size if name == axis else length(call, name) for name in ("queries", "keys")}
        changes["visibility.mask"] = upper_left(sizes["queries"], sizes["keys"])[None, None]
    if axis == "query_heads":
        changes["head_map"] = tuple(call.head_map[h] for h in kept)
    if axis == "key_heads":
        # A head that lost its key head points at -1, which the call's own check refuses.
        places = kept.tolist()
        changes["head_map"] = tuple(places.index(target) if target in places else -1 for target in call.head_map)
    return call.with_parts(changes)


def with_explicit_mask(call: AttentionCall) -> AttentionCall:
    """The call with its mask passed as a tensor: a flag seldom expresses what cutting leaves of a causal mask."""
    if call.encoding in ("causal_flag", "none"):
        return call.but(encoding="bool" if call.bias is None else "additive")
    return call


def compact(array: np.ndarray, axes: Iterable[int] | None = None) -> np.ndarray:
    """The array with length 1 along every axis on which it does not vary (of `axes`, where they are given)."""
    for axis in range(array.ndim) if axes is None else axes:
        if array.shape[axis] > 1:
            first = np.take(array, [0], axis=axis)
            array = first if bool((array == first).all()) else array
    return np.ascontiguousarray(array)


def take_heads(call: AttentionCall, query_heads: Sequence[int]) -> AttentionCall:
    """The call with only these query heads, and of the key heads only those that they read."""
    used = sorted({call.head_map[h] for h in query_heads})
    return take(take(call, "query_heads", query_heads), "key_heads", used)


def share_key_head(call: AttentionCall, key_head: int) -> AttentionCall:
    """The call in which every query head reads this key head, the only one left."""
    shared = call.but(head_map=(key_head,) * call.axes.query_heads)
    return take(shared, "key_heads", [key_head])
