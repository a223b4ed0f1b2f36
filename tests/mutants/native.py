"""Says a boolean visibility in the kernel's own words (causal, window, segments), with a mask for what is left.

The campaign hands visibility over as one table. A kernel with native causal alignment, windows or packing would
never be driven by that, so the zoo's subject factors such tables: visible = mask ∧ causal, mask ∧ window, segments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class Words:
    """Keyword arguments of the zoo kernel, and the mask that must stand beside them (None: they say it all)."""

    kind: str
    options: dict[str, Any]
    mask: np.ndarray | None = None


def native(visible: np.ndarray) -> list[Words]:
    """Every factoring of visible [B,Hq,Q,K] known here; none where everything, or nothing, is visible."""
    if visible.size == 0 or visible.all() or not visible.any():
        return []
    ways: list[Words] = []
    _, _, queries, keys = visible.shape
    anywhere = visible.any((0, 1))
    for causal, offset in (("upper_left", 0), ("lower_right", keys - queries)):
        distance = np.arange(keys)[None, :] - np.arange(queries)[:, None] - offset
        table = distance <= 0
        if not (anywhere & ~table).any() and not table.all():
            ways.append(Words("causal", {"is_causal": True, "causal": causal}, left_over(visible, table)))
        low, high = int(distance[anywhere].min()), int(distance[anywhere].max())
        left = None if low == distance.min() else -low
        right = None if high == distance.max() else high
        if left is None and right is None:
            continue
        band = (distance >= low) & (distance <= high)
        options: dict[str, Any] = {"window": (left, right), "causal": causal}
        ways.append(Words("window", options, left_over(visible, band)))
        if right == 0 and left is not None:
            options = {"window": (left, None), "causal": causal, "is_causal": True}
            ways.append(Words("causal window", options, left_over(visible, band)))
    segments = blocks(visible)
    if segments is not None:
        ways.append(Words("segments", {"segments": segments}))
    return ways


def left_over(visible: np.ndarray, table: np.ndarray) -> np.ndarray | None:
    """The largest mask that gives visible together with the table, axes along which it is constant of length 1."""
    mask = visible | ~table
    if mask.all():
        return None
    for axis in range(4):
        first = mask.take([0], axis)
        if (mask == first).all():
            mask = first
    return mask


def blocks(visible: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Segment ids [B,Q] and [B,K] of a table in which any two rows see the same keys or none in common."""
    batch, _, queries, keys = visible.shape
    if not (visible == visible[:, :1]).all():
        return None
    query_ids, key_ids = np.full((batch, queries), -1), np.full((batch, keys), -2)
    for b in range(batch):
        for i in range(queries):
            row = visible[b, 0, i]
            if not row.any():
                continue
            first = int(row.argmax())
            if key_ids[b, first] == -2:
                if (key_ids[b, row] != -2).any():
                    return None
                key_ids[b, row] = first
            if ((key_ids[b] == key_ids[b, first]) != row).any():
                return None
            query_ids[b, i] = key_ids[b, first]
    return query_ids, key_ids
