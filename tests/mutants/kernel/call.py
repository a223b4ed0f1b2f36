"""One call of the zoo kernel with every default resolved, and the planted bugs of that resolution."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .numerics import Numerics, numerics_of

Segments = tuple[Tensor, Tensor]
Window = tuple[int | None, int | None]
Bugs = frozenset[str]


@dataclass(frozen=True)
class Shape:
    """The seven axes of a call; every one may be zero and none is tied to another."""

    batch: int
    query_heads: int
    kv_heads: int
    queries: int
    keys: int
    width: int
    value_width: int


@dataclass(frozen=True)
class Call:
    """Everything but the differentiable tensors: resolved scale, head map, visibility sources, tiles, bugs."""

    shape: Shape
    numerics: Numerics
    scale: float
    head_map: tuple[int, ...]
    mask: Tensor | None
    is_causal: bool
    alignment: str
    window: Window | None
    segments: Segments | None
    softcap: float | None
    multiplier: Tensor | None
    tile: tuple[int, int]
    bugs: Bugs


def shape_of(query: Tensor, key: Tensor, value: Tensor, bugs: Bugs) -> Shape:
    """Axes of [B,Hq,Q,D], [B,Hkv,K,D], [B,Hkv,K,Dv]. Raises ValueError or TypeError naming what disagrees."""
    if not query.dtype == key.dtype == value.dtype and "mixed_types_accepted" not in bugs:
        raise TypeError(f"query, key, value must share one type: {query.dtype}, {key.dtype}, {value.dtype}")
    if query.shape[0] != key.shape[0] or key.shape[:3] != value.shape[:3] or query.shape[3] != key.shape[3]:
        raise ValueError(f"axes disagree: {tuple(query.shape)}, {tuple(key.shape)}, {tuple(value.shape)}")
    batch, query_heads, queries, width = query.shape
    return Shape(batch, query_heads, key.shape[1], queries, key.shape[2], width, value.shape[3])


def resolve_scale(scale: float | None, shape: Shape, bugs: Bugs) -> float:
    """The scale of the score product: the caller's, or width^-1/2 (1 where the width is zero)."""
    width = shape.width
    if "scale_taken_from_the_model_width" in bugs:
        width = shape.width * shape.query_heads
    if "scale_taken_from_the_value_width" in bugs:
        width = shape.value_width
    default = 1.0 / math.sqrt(width) if width else 1.0
    if "scale_omitted" in bugs:
        return 1.0
    if scale is None or "user_scale_ignored" in bugs:
        return default
    if "zero_scale_taken_as_missing" in bugs:
        return scale or default
    if "user_scale_applied_twice" in bugs:
        return scale * scale
    if "sign_of_scale_lost" in bugs:
        return abs(scale)
    return float(scale)


def resolve_head_map(head_map: tuple[int, ...] | None, shape: Shape, enable_gqa: bool, bugs: Bugs) -> tuple[int, ...]:
    """Which key/value head each query head reads: the caller's map, or equal consecutive groups.

    Raises ValueError where the map is out of range, or the heads differ and are not grouped evenly.
    """
    heads, kv_heads = shape.query_heads, shape.kv_heads
    if head_map is not None and "head_map_ignored" not in bugs:
        if len(head_map) != heads or any(not 0 <= h < kv_heads for h in head_map):
            raise ValueError(f"head_map {head_map} does not map {heads} query heads into {kv_heads}")
        return tuple(head_map)
    if heads != kv_heads and not enable_gqa and head_map is None:
        raise ValueError(f"{heads} query heads and {kv_heads} key heads need enable_gqa or a head_map")
    if kv_heads == 0 and heads == 0:
        return ()
    uneven = kv_heads == 0 or heads % kv_heads != 0
    if uneven and head_map is None and "uneven_groups_accepted" not in bugs:
        raise ValueError(f"{heads} query heads do not divide into {kv_heads} groups")
    group = max(1, -(-heads // kv_heads))
    if "grouped_heads_tiled_in_place_of_repeated" in bugs:
        return tuple(h % kv_heads for h in range(heads))
    if "group_size_used_as_head_stride" in bugs:
        return tuple((h % group) * group % kv_heads for h in range(heads))
    if "every_query_head_reads_kv_head_zero" in bugs:
        return (0,) * heads
    return tuple(min(h // group, kv_heads - 1) for h in range(heads))


def resolve(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None,
    is_causal: bool,
    alignment: str,
    scale: float | None,
    enable_gqa: bool,
    window: Window | None,
    segments: Segments | None,
    softcap: float | None,
    head_map: tuple[int, ...] | None,
    multiplier: Tensor | None,
    tile: tuple[int, int],
    bugs: Bugs,
) -> Call:
    """The resolved call of four-dimensional tensors. Raises ValueError or TypeError on what does not fit."""
    if alignment not in ("upper_left", "lower_right"):
        raise ValueError(f"causal is 'upper_left' or 'lower_right', not {alignment!r}")
    if min(tile) < 1:
        raise ValueError(f"tile sizes are positive, not {tile}")
    shape = shape_of(query, key, value, bugs)
    return Call(
        shape=shape,
        numerics=numerics_of(query.dtype),
        scale=resolve_scale(scale, shape, bugs),
        head_map=resolve_head_map(head_map, shape, enable_gqa, bugs),
        mask=mask,
        is_causal=is_causal,
        alignment=alignment,
        window=window,
        segments=segments,
        softcap=softcap,
        multiplier=multiplier,
        tile=tile,
        bugs=bugs,
    )


def padded_length(length: int, tile: int) -> int:
    """The length rounded up to whole tiles."""
    return -(-length // tile) * tile


def misread(x: Tensor) -> Tensor:
    """x read as if its memory were dense: element i of the view is element offset + i of the storage."""
    stored = x.untyped_storage().nbytes() // x.element_size()
    if x.numel() == 0 or stored == 0:
        return x
    flat = torch.as_strided(x, (stored,), (1,), 0)
    return flat[(torch.arange(x.numel()) + x.storage_offset()) % stored].reshape(x.shape)
