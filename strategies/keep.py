"""Part of a call: the same call with only some positions of one axis kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attnspec.pyspec.calls.call import AttentionCall, Visibility
from attnspec.pyspec.visibility import upper_left
from attnspec.strategies.chooser import one_of

CALL_AXES = ("batch", "query_heads", "key_heads", "queries", "keys", "key_width", "value_width")

# Which axis of which array a call's axis is. Score arrays are mask, bias and multiplier, [B, Hq, Q, K].
_TENSOR_AXIS: dict[str, dict[str, int]] = {
    "batch": {"query": 0, "key": 0, "value": 0, "grad_output": 0, "query_valid": 0, "score": 0},
    "query_heads": {"query": 1, "grad_output": 1, "score": 1, "sink": 0},
    "key_heads": {"key": 1, "value": 1},
    "queries": {"query": 2, "grad_output": 2, "query_valid": 1, "score": 2},
    "keys": {"key": 2, "value": 2, "score": 3},
    "key_width": {"query": 3, "key": 3},
    "value_width": {"value": 3, "grad_output": 3},
}


def keep(call: AttentionCall, axis: str, positions: Sequence[int]) -> AttentionCall:
    """The call with only these positions of the axis, in this order.

    Arrays stored with length 1 along a longer axis stay so; a causal flag goes with the causal mask of the new
    lengths. Raises CallError when a key head still in use would go.
    """
    one_of("axis", axis, CALL_AXES)
    kept = np.array(positions, dtype=np.intp)
    touched = _TENSOR_AXIS[axis]
    length = getattr(call.axes, axis)

    def cut(name: str, array: np.ndarray | None) -> Any:
        at = touched.get(name)
        if array is None or at is None or (name == "score" and array.shape[at] == 1 and length != 1):
            return array
        return np.ascontiguousarray(np.take(array, kept, axis=at))

    changes = {name: cut(name, getattr(call, name)) for name in ("query", "key", "value", "grad_output", "sink")}
    v = call.visibility
    mask = cut("score", v.mask)
    if call.encoding == "causal_flag":
        mask = upper_left(changes["query"].shape[2], changes["key"].shape[2])[None, None]
    if call.dropout is not None:
        changes["dropout"] = replace(call.dropout, multiplier=cut("score", call.dropout.multiplier))
    return call.but(
        **changes,
        bias=cut("score", call.bias),
        visibility=Visibility(mask, cut("query_valid", v.query_valid), v.empty_rows),
        head_map=_head_map(call, axis, [int(i) for i in kept]),
    )


def _head_map(call: AttentionCall, axis: str, kept: list[int]) -> tuple[int, ...]:
    if axis == "query_heads":
        return tuple(call.head_map[h] for h in kept)
    if axis == "key_heads":
        # A head that lost its key head points at -1, which the call's own check refuses.
        return tuple(kept.index(target) if target in kept else -1 for target in call.head_map)
    return call.head_map


def keep_heads(call: AttentionCall, query_heads: Sequence[int]) -> AttentionCall:
    """The call with only these query heads, and of the key heads only those that they read."""
    used = sorted({call.head_map[h] for h in query_heads})
    return keep(keep(call, "query_heads", query_heads), "key_heads", used)


def share_key_head(call: AttentionCall, key_head: int) -> AttentionCall:
    """The call in which every query head reads this key head, the only one left."""
    shared = call.but(head_map=(key_head,) * call.axes.query_heads)
    return keep(shared, "key_heads", [key_head])
