"""Masks: families of visibility patterns, their storage, and rows emptied on purpose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np

from attnspec.pyspec import visibility as vis
from attnspec.pyspec.calls.call import Axes, Visibility
from attnspec.strategies.chooser import Chooser, one_of, weighted
from attnspec.strategies.features import Features

MASK_AXES = ("batch", "head", "query", "key")
EMPTIED_ROWS = ("none", "mask", "query_valid")
EMPTIED_WHICH = ("first", "odd", "scattered")


@dataclass(frozen=True)
class MaskPlan:
    """A mask by name: its family, the family's variant, the axes stored with length 1, and emptied rows.

    emptied: "none", "mask" (rows cleared in the mask, a neighbour of each made full) or "query_valid" (rows marked
    invalid). emptied_rows: "first", "odd" or "scattered". repair: give each empty row a visible key.
    """

    family: str
    variant: Any = None
    broadcast: tuple[str, ...] = ("batch", "head", "query", "key")
    emptied: str = "none"
    emptied_rows: str = "first"
    repair: bool = False


@dataclass(frozen=True)
class _Sizes:
    """Stored sizes b, h, q, k (1 where broadcast) next to the true numbers of queries and keys."""

    b: int
    h: int
    q: int
    k: int
    queries: int
    keys: int


_Pattern = Callable[[np.random.Generator, _Sizes, Any], np.ndarray]


@dataclass(frozen=True)
class _Family:
    """A pattern, its variants (simplest first), the axes that may be stored with length 1, and when it applies."""

    pattern: _Pattern
    variants: tuple[Any, ...] = (None,)
    broadcast: str = "bh"
    weight: int = 1
    applies: Callable[[Axes], bool] = lambda axes: True


def _offset(value: int | str, s: _Sizes) -> int:
    return (
        {"lower_right": 0, "lower_right+1": 1, "lower_right-1": -1}[value] + s.keys - s.queries
        if isinstance(value, str)
        else value
    )


def _keys_where(valid: np.ndarray) -> np.ndarray:
    """[b, h, keys] of valid keys as a mask [b, h, 1, keys]."""
    rows = [vis.key_padding(1, v) for v in valid.reshape(-1, valid.shape[-1])]
    return np.array(rows, dtype=bool).reshape(*valid.shape[:-1], 1, valid.shape[-1])


def _single_key(rng: np.random.Generator, s: _Sizes, variant: str) -> np.ndarray:
    j = np.arange(s.keys)
    if variant == "each_row":
        return j == rng.integers(0, s.keys, size=(s.b, s.h, s.q, 1))
    return _keys_where((j == {"first": 0, "middle": s.keys // 2}[variant])[None, None])


def _last_key_only(rng: np.random.Generator, s: _Sizes, variant: None) -> np.ndarray:
    return _keys_where((np.arange(s.keys) == s.keys - 1)[None, None])


def _key_padding(rng: np.random.Generator, s: _Sizes, variant: str) -> np.ndarray:
    j, length = np.arange(s.keys), rng.integers(0, s.keys + 1, size=(s.b, s.h, 1))
    if variant == "holes":
        return _keys_where(rng.random((s.b, s.h, s.keys)) < 0.5)
    return _keys_where(j < length if variant == "right" else j >= s.keys - length)


def _segments(rng: np.random.Generator, s: _Sizes, count: int) -> np.ndarray:
    query, key = (np.sort(rng.integers(0, count, size=(s.b, n)), axis=1) for n in (s.queries, s.keys))
    return np.array([vis.segments(q, k) for q, k in zip(query, key, strict=True)])[:, None]


def _prefix(rng: np.random.Generator, s: _Sizes, variant: tuple[str, int | str]) -> np.ndarray:
    length = {"one": 1, "half": s.keys // 2, "most": s.keys - 1}[variant[0]]
    return vis.prefix(s.queries, s.keys, length, _offset(variant[1], s))


def _window(rng: np.random.Generator, s: _Sizes, variant: tuple[int, int, int | str]) -> np.ndarray:
    return vis.window(s.queries, s.keys, variant[0], variant[1], _offset(variant[2], s))


def _alternating(rng: np.random.Generator, s: _Sizes, variant: str) -> np.ndarray:
    i, j = np.arange(s.queries)[:, None], np.arange(s.keys)[None, :]
    return {"checker": (i + j) % 2 == 0, "keys": (0 * i + j) % 2 == 0, "tiles": (0 * i + j // 16) % 2 == 1}[variant]


def _first_tile_hidden(rng: np.random.Generator, s: _Sizes, variant: tuple[int, str]) -> np.ndarray:
    # A tile of 16 is hidden by every variant; wider ones only where keys remain behind them.
    tile = variant[0] if variant[0] < s.keys else 16
    valid = np.arange(s.keys) >= tile
    if variant[1] == "scattered":
        valid &= rng.random(s.keys) < 0.5
        valid[-1] = True
    return _keys_where(valid[None, None])


def _per_group(count: int, s: _Sizes, variant: str) -> np.ndarray:
    """[count, 1|queries, keys]: group g has its own padding length or causal offset; neighbours differ."""
    if variant == "padding":
        lengths = [1 + (s.keys + 1) // 2 * g % s.keys for g in range(count)]
        return np.array([vis.key_padding(1, np.arange(s.keys) < n) for n in lengths])
    return np.array([vis.causal(s.queries, s.keys, s.keys // 2 - 2 * g) for g in range(count)])


def _per_row(rng: np.random.Generator, s: _Sizes, variant: str) -> np.ndarray:
    i, j = np.arange(s.queries)[:, None], np.arange(s.keys)[None, :]
    return j < 1 + 7 * i % s.keys if variant == "prefix" else (i + j) % (2 + i % 4) == 0


_WINDOWS = (
    (0, 0, 0), (1, 0, 0), (1, 1, 0), (2, 2, 1), (0, 3, -2), (15, 0, "lower_right"), (16, 16, "lower_right"),
    (3, 0, "lower_right"), (40, -1, 3),
)  # fmt: skip

_FAMILIES: dict[str, _Family] = {
    "full": _Family(lambda r, s, v: np.ones((1, 1, 1, 1), dtype=bool), (None,), "bhqk", 6),
    "empty": _Family(lambda r, s, v: np.zeros((1, 1, 1, 1), dtype=bool), (None,), "bhqk"),
    "random": _Family(lambda r, s, v: r.random((s.b, s.h, s.q, s.k)) < v, (0.5, 0.9, 0.1), "bhqk", 5),
    "single_key": _Family(_single_key, ("first", "middle", "each_row"), "bhq", 2),
    "causal_upper_left": _Family(lambda r, s, v: vis.upper_left(s.queries, s.keys), weight=8),
    "causal_lower_right": _Family(lambda r, s, v: vis.lower_right(s.queries, s.keys), weight=2),
    "causal_offset": _Family(
        lambda r, s, v: vis.causal(s.queries, s.keys, _offset(v, s)),
        (1, -1, 2, -2, 5, -5, 16, -16, "lower_right+1", "lower_right-1"),
        weight=2,
    ),
    "key_padding": _Family(_key_padding, ("right", "left", "holes"), "bhq", 2),
    "segments": _Family(_segments, (2, 3, 5), "bh", 3),
    "prefix": _Family(_prefix, (("one", 0), ("half", 0), ("most", 0), ("half", "lower_right"))),
    "window": _Family(_window, _WINDOWS, weight=2),
    "alternating": _Family(_alternating, ("checker", "keys", "tiles")),
    "first_tile_hidden": _Family(
        _first_tile_hidden, tuple((t, how) for how in ("all", "scattered") for t in (16, 32, 64)), "bhq", 3,
        lambda a: a.keys > 16,
    ),
    "last_key_only": _Family(_last_key_only, (None,), "bhq"),
    "per_head": _Family(
        lambda r, s, v: _per_group(s.h, s, v)[None], ("padding", "offset"), "bq", 3,
        lambda a: a.query_heads > 1 and a.keys > 1,
    ),
    "per_batch": _Family(
        lambda r, s, v: _per_group(s.b, s, v)[:, None], ("padding", "offset"), "hq", 3,
        lambda a: a.batch > 1 and a.keys > 1,
    ),
    "per_row": _Family(_per_row, ("prefix", "scattered"), "bh", 2, lambda a: a.queries > 1 and a.keys > 1),
}  # fmt: skip

MASK_FAMILIES = tuple(_FAMILIES)
# Rows from here on are rare, and what goes wrong there mostly goes wrong with causal masks.
_LATE = 120
# Variants whose rows differ: their query axis cannot be stored with length 1.
_ROWWISE = ("each_row", "offset")


@lru_cache(maxsize=512)
def _subsets(letters: str) -> tuple[tuple[str, ...], ...]:
    """All subsets of the axes named by first letters, largest first.

    Those that leave neither queries nor keys to differ weigh a third.
    """
    names = tuple(n for n in MASK_AXES if n[0] in letters)
    subsets = [c for size in range(len(names), -1, -1) for c in combinations(names, size)]
    return weighted(*((c, 1 if "key" in c and "query" in c else 3) for c in subsets))


@lru_cache(maxsize=1024)
def _family_options(axes: Axes, features: Features) -> tuple[str, ...]:
    if not features.any_mask:
        allowed = [f for f, e in (("full", "none"), ("causal_upper_left", "causal_flag")) if e in features.encodings]
    elif 0 in (axes.batch, axes.query_heads, axes.queries, axes.keys):
        allowed = ["full", "empty", "random"]  # Patterns over no positions are all the same.
    else:
        allowed = [name for name, f in _FAMILIES.items() if f.applies(axes)]
    if not features.empty_rows:
        allowed = [name for name in allowed if name != "empty"]
    options = weighted(*((name, _FAMILIES[name].weight) for name in allowed))
    if min(axes.queries, axes.keys) >= _LATE and "causal_upper_left" in allowed:
        options += ("causal_upper_left",) * (len(options) // 3)  # At the end: the places before keep their meaning.
    return options


_EMPTIED = weighted(("none", 8), ("mask", 2), ("query_valid", 1))


def draw_mask(choose: Chooser, axes: Axes, features: Features) -> MaskPlan:
    """A mask plan that the features allow."""
    family = choose("mask", _family_options(axes, features))
    spec = _FAMILIES[family]
    variant = choose("mask_variant", spec.variants)
    letters = spec.broadcast
    if isinstance(variant, str) and variant in _ROWWISE:
        letters = letters.replace("q", "")
    if family == "random" and not features.empty_rows:
        letters = letters.replace("k", "")
    broadcast = choose("mask_broadcast", _subsets(letters))
    may_empty = features.empty_rows and features.any_mask and axes.queries > 0 and axes.keys > 0
    emptied = choose("emptied", _EMPTIED if may_empty else _EMPTIED[:1])
    if emptied == "mask":
        broadcast = tuple(n for n in broadcast if n != "query")
    rows = choose("emptied_rows", EMPTIED_WHICH if emptied != "none" else EMPTIED_WHICH[:1])
    return MaskPlan(family, variant, broadcast, emptied, rows, repair=not features.empty_rows)


def build_mask(plan: MaskPlan, axes: Axes, rng: np.random.Generator) -> Visibility:
    """The visibility of a plan: a boolean mask whose axes are of full length or 1, and perhaps valid queries."""
    one_of("mask family", plan.family, MASK_FAMILIES)
    one_of("emptied", plan.emptied, EMPTIED_ROWS)
    full = (axes.batch, axes.query_heads, axes.queries, axes.keys)
    stored = tuple(1 if name in plan.broadcast else n for name, n in zip(MASK_AXES, full, strict=True))
    b, h, q, k = stored
    sizes = _Sizes(b, h, q, k, axes.queries, axes.keys)
    mask = np.broadcast_to(_FAMILIES[plan.family].pattern(rng, sizes, plan.variant), stored).copy()
    if plan.repair and mask.size:
        mask[..., 0] |= ~mask.any(axis=-1)
    if plan.emptied == "none":
        return Visibility(mask)
    rows = _rows(plan.emptied_rows, axes.queries, rng)
    if plan.emptied == "mask":
        mask[..., np.flatnonzero(~rows), :] |= _beside(rows)[~rows][:, None]
        mask[..., rows, :] = False
        return Visibility(mask)
    return Visibility(mask, query_valid=np.broadcast_to(~rows, (axes.batch, axes.queries)).copy())


def _rows(which: str, queries: int, rng: np.random.Generator) -> np.ndarray:
    """Which rows are emptied: at least one, never all of two or more."""
    i = np.arange(queries)
    if which == "first" or queries == 1:
        return i == 0
    if which == "odd":
        return i % 2 == 1
    rows = rng.random(queries) < 0.3
    rows[rng.integers(queries)] = True
    if rows.all():
        rows[0] = False
    return rows


def _beside(rows: np.ndarray) -> np.ndarray:
    """Rows next to an emptied one."""
    beside = np.zeros_like(rows)
    beside[1:] |= rows[:-1]
    beside[:-1] |= rows[1:]
    return beside
