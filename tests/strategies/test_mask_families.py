"""Mask families do what their names say, on every shape and storage."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from attnspec.pyspec import visibility as vis
from attnspec.pyspec.calls.call import Axes
from attnspec.strategies import Features, plan_at, small
from attnspec.strategies.masks import MASK_AXES, MASK_FAMILIES, MaskPlan, build_mask

AXES = Axes(2, 3, 3, 9, 40, 2, 2)
ALL = tuple(MASK_AXES)


def mask_of(
    family: str,
    variant: object = None,
    *,
    axes: Axes = AXES,
    broadcast: tuple[str, ...] = ("batch", "head"),
    **changes: object,
) -> np.ndarray:
    plan = MaskPlan(family, variant, broadcast, **changes)  # type: ignore[arg-type]
    found = build_mask(plan, axes, np.random.default_rng(5))
    shape = (axes.batch, axes.query_heads, axes.queries, axes.keys)
    visible = np.broadcast_to(found.mask, shape)
    return visible if found.query_valid is None else visible & found.query_valid[:, None, :, None]


def test_full_and_empty() -> None:
    assert mask_of("full", broadcast=ALL).all()
    assert not mask_of("empty", broadcast=ALL).any()


@pytest.mark.parametrize("density", [0.1, 0.5, 0.9])
def test_random_has_its_density(density: float) -> None:
    assert abs(mask_of("random", density, broadcast=()).mean() - density) < 0.05


@pytest.mark.parametrize("variant", ["first", "middle", "each_row"])
def test_single_key_shows_one_key_a_row(variant: str) -> None:
    mask = mask_of("single_key", variant, broadcast=())
    assert (mask.sum(axis=-1) == 1).all()
    assert (mask == mask[:1, :1, :1]).all() == (variant != "each_row")


def test_causal_alignments_differ_on_rectangles() -> None:
    upper, lower = mask_of("causal_upper_left"), mask_of("causal_lower_right")
    assert (upper == vis.upper_left(9, 40)).all()
    assert (lower == vis.lower_right(9, 40)).all()
    assert (mask_of("causal_offset", -2) == vis.causal(9, 40, -2)).all()
    assert (mask_of("causal_offset", "lower_right+1") == vis.causal(9, 40, 32)).all()
    assert (upper != lower).any()


def test_key_padding_hides_a_tail_a_head_or_holes() -> None:
    right = mask_of("key_padding", "right", broadcast=("head", "query"))
    assert (np.diff(right.astype(int), axis=-1) <= 0).all()
    assert (right[0] != right[1]).any()
    assert (np.diff(mask_of("key_padding", "left").astype(int), axis=-1) >= 0).all()
    holes = np.diff(mask_of("key_padding", "holes")[0, 0, 0].astype(int))
    assert {-1, 1} <= set(holes.tolist())


def test_segments_are_blocks_along_the_diagonal() -> None:
    mask = mask_of("segments", 3, broadcast=("head",))
    for rows in mask[:, 0]:
        for row in rows:
            assert np.count_nonzero(np.diff(row.astype(int))) <= 2
        first = np.array([row.argmax() if row.any() else -1 for row in rows])
        assert (np.diff(first[first >= 0]) >= 0).all()


def test_prefix_window_and_alternating() -> None:
    assert (mask_of("prefix", ("half", 0)) == vis.prefix(9, 40, 20, 0)).all()
    assert (mask_of("prefix", ("one", "lower_right")) == vis.prefix(9, 40, 1, 31)).all()
    assert (mask_of("window", (3, 0, "lower_right")) == vis.window(9, 40, 3, 0, 31)).all()
    checker = mask_of("alternating", "checker")
    assert (checker[..., 1:] != checker[..., :-1]).all()
    assert (checker[..., 1:, :] != checker[..., :-1, :]).all()
    tiles = mask_of("alternating", "tiles")
    assert not tiles[..., :16].any()
    assert tiles[..., 16:32].all()


@pytest.mark.parametrize("tile", [16, 32, 64])
@pytest.mark.parametrize("how", ["all", "scattered"])
@pytest.mark.parametrize("keys", [17, 40, 65, 129])
def test_first_tile_hidden_hides_a_tile_and_shows_a_later_key(tile: int, how: str, keys: int) -> None:
    axes = Axes(1, 1, 1, 3, keys, 1, 1)
    mask = mask_of("first_tile_hidden", (tile, how), axes=axes)
    hidden = tile if tile < keys else 16
    assert not mask[..., :hidden].any()
    assert mask[..., hidden:].any(axis=-1).all()


@pytest.mark.parametrize(("family", "axis"), [("per_head", 1), ("per_batch", 0)])
@pytest.mark.parametrize("variant", ["padding", "offset"])
def test_neighbouring_groups_differ(family: str, axis: int, variant: str) -> None:
    mask = np.moveaxis(mask_of(family, variant, broadcast=("head",) if axis == 0 else ("batch",)), axis, 0)
    for one, next_one in pairwise(mask):
        assert (one != next_one).any()


@pytest.mark.parametrize("variant", ["prefix", "scattered"])
def test_neighbouring_rows_differ(variant: str) -> None:
    mask = mask_of("per_row", variant)
    assert (mask[..., 1:, :] != mask[..., :-1, :]).any(axis=-1).all()


@pytest.mark.parametrize("emptied", ["mask", "query_valid"])
@pytest.mark.parametrize("rows", ["first", "odd", "scattered"])
@pytest.mark.parametrize("queries", [1, 2, 3, 16])
def test_emptied_rows_are_empty_next_to_full_ones(emptied: str, rows: str, queries: int) -> None:
    axes = Axes(2, 2, 2, queries, 5, 1, 1)
    for family in ("full", "random"):
        mask = mask_of(family, 0.5, axes=axes, broadcast=("batch", "head"), emptied=emptied, emptied_rows=rows)
        empty, full = ~mask.any(axis=-1), mask.all(axis=-1)
        assert empty.any()
        if queries > 1 and (family == "full" or emptied == "mask"):
            beside = (empty[..., 1:] & full[..., :-1]) | (empty[..., :-1] & full[..., 1:])
            assert beside.any(axis=-1).all()


def test_repair_gives_every_row_a_key_and_changes_no_other_row() -> None:
    for family, variant in (("causal_offset", -5), ("segments", 5), ("key_padding", "holes"), ("random", 0.1)):
        before, after = mask_of(family, variant), mask_of(family, variant, repair=True)
        assert after.any(axis=-1).all()
        assert (before == after)[before.any(axis=-1)].all()


def test_broadcast_axes_are_stored_with_length_one_and_the_others_in_full() -> None:
    seen: dict[str, set[str]] = {family: set() for family in MASK_FAMILIES}
    for index in range(3000):
        plan = plan_at(31, index, small("pr"), Features(zero_sizes=False))
        a = plan.axes
        mask = build_mask(plan.mask, a, np.random.default_rng(0)).mask
        full = (a.batch, a.query_heads, a.queries, a.keys)
        for axis, name in enumerate(MASK_AXES):
            stored_short = name in plan.mask.broadcast
            assert mask.shape[axis] == (1 if stored_short else full[axis])
            if stored_short:
                seen[plan.mask.family].add(name)
    assert seen["random"] == seen["full"] == seen["empty"] == set(MASK_AXES)
    assert seen["key_padding"] == seen["last_key_only"] == {"batch", "head", "query"}
    assert seen["causal_upper_left"] == seen["per_row"] == {"batch", "head"}
    assert seen["per_head"] == {"batch", "query"}
    assert seen["per_batch"] == {"head", "query"}
