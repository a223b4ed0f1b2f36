"""Grouped heads: which key/value head each query head reads, and the sum of gradients back over groups."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from attnspec.pyspec.domain import Domain

LEAN_MODULES = ("AttnSpec.Heads",)

M = TypeVar("M")


def grouped(query_heads: int, key_heads: int) -> tuple[int, ...]:
    """Equal consecutive groups: h // (Hq / Hkv). A ValueError when Hkv does not divide Hq. Lean: AttnSpec.grouped."""
    if query_heads == 0:
        return ()
    if key_heads == 0 or query_heads % key_heads:
        raise ValueError(
            f"{query_heads} query heads over {key_heads} key heads: no equal groups; give an explicit head_map"
        )
    return tuple(h // (query_heads // key_heads) for h in range(query_heads))


def is_grouped(head_map: tuple[int, ...], key_heads: int) -> bool:
    """Are these equal consecutive groups? Trivially so without query heads or key heads."""
    if not head_map or key_heads == 0:
        return True
    return len(head_map) % key_heads == 0 and head_map == grouped(len(head_map), key_heads)


def repeat(dom: Domain[M], head_map: tuple[int, ...], kv: M) -> M:
    """Key or value heads as each query head reads them. Lean: AttnSpec.repeatHeads."""
    return dom.take(kv, np.array(head_map, dtype=np.intp))


def group_sum(dom: Domain[M], stage: str, head_map: tuple[int, ...], key_heads: int, grad: M, zero: M) -> M:
    """Gradient of `repeat`: per key head, the sum over its query heads; `zero` [B,1,..] where there is none.

    Lean: AttnSpec.groupSum.
    """
    targets = np.array(head_map, dtype=np.intp)
    parts = []
    for head in range(key_heads):
        members = np.flatnonzero(targets == head)
        if members.size == 0:
            parts.append(zero)
        elif members.size == 1:
            parts.append(dom.take(grad, members))
        else:
            parts.append(dom.sum_axis(stage, dom.take(grad, members), 1))
    return dom.stack_heads(parts) if parts else dom.take(grad, np.zeros(0, dtype=np.intp))
