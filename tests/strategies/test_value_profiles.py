"""Value and gradient profiles keep their promises in every dtype."""

from __future__ import annotations

import numpy as np
import pytest

from attnspec.pyspec.calls.call import Axes
from attnspec.pyspec.calls.formats import FORMATS, get_format, is_representable
from attnspec.pyspec.scale import default_scale
from attnspec.strategies.gradients import GRADIENT_PROFILES, build_gradient
from attnspec.strategies.shapes import ZEROED, zeroed
from attnspec.strategies.values import VALUE_PROFILES, build_values

AXES = Axes(2, 3, 3, 7, 33, 5, 4)
SCALES = (None, 1.0, 0.125, -0.25, 3.0, 64.0)

Triple = tuple[np.ndarray, np.ndarray, np.ndarray]


def triple(
    profile: str, dtype: str = "float32", scale: float | None = None, axes: Axes = AXES, seed: int = 0
) -> Triple:
    factor = default_scale(axes.key_width) if scale is None else scale
    return build_values(profile, axes, dtype, factor, np.random.default_rng(seed))


def logits(profile: str, dtype: str, scale: float | None, seed: int = 0) -> np.ndarray:
    query, key, _ = triple(profile, dtype, scale, seed=seed)
    return (default_scale(5) if scale is None else scale) * (query @ key.swapaxes(-1, -2))


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("profile", VALUE_PROFILES)
def test_values_are_finite_values_of_the_dtype_at_every_size(profile: str, dtype: str) -> None:
    shapes = [AXES, Axes(1, 1, 1, 1, 1, 1, 1), *(zeroed(AXES, name) for name in ZEROED)]
    for axes in shapes:
        for scale in (*SCALES, 0.0):
            query, key, value = triple(profile, dtype, scale, axes)
            assert query.shape == (axes.batch, 3 if axes.query_heads == 3 else 1, axes.queries, axes.key_width)
            assert key.shape == (axes.batch, axes.key_heads, axes.keys, axes.key_width)
            assert value.shape == (axes.batch, axes.key_heads, axes.keys, axes.value_width)
            for array in (query, key, value):
                assert np.isfinite(array).all()
                assert is_representable(dtype, array).all()


@pytest.mark.parametrize("profile", ["zeros", "ones", "unit", "small_integers"])
def test_simple_profiles_are_simple(profile: str) -> None:
    allowed = {"zeros": [0], "ones": [1], "unit": [0, 1], "small_integers": range(-3, 4)}[profile]
    for array in triple(profile):
        assert np.isin(array, list(allowed)).all()
    assert len(np.unique(triple(profile)[0])) == len(allowed)


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("scale", SCALES)
def test_low_logits_are_all_below_minus_95(dtype: str, scale: float | None) -> None:
    for seed in range(5):
        assert logits("low_logits", dtype, scale, seed).max() < -95


@pytest.mark.parametrize("dtype", FORMATS)
def test_low_logits_sometimes_lie_far_below_but_in_float16(dtype: str) -> None:
    lows = [logits("low_logits", dtype, None, seed).max() for seed in range(40)]
    assert (min(lows) < -60_000) == (dtype != "float16")
    assert max(lows) > -500


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("scale", SCALES)
def test_large_logits_exceed_90_on_both_sides(dtype: str, scale: float | None) -> None:
    for seed in range(5):
        found = logits("large_logits", dtype, scale, seed)
        assert found.max() > 90
        assert found.min() < -90


def test_large_logits_reach_thousands_in_float32_and_stay_finite_in_float16() -> None:
    assert max(np.abs(logits("large_logits", "float32", None, seed)).max() for seed in range(20)) > 5_000
    assert max(np.abs(logits("large_logits", "float16", None, seed)).max() for seed in range(20)) < 20_000


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("scale", SCALES)
def test_one_key_stands_far_apart(dtype: str, scale: float | None) -> None:
    found = np.sort(logits("onehot_logits", dtype, scale), axis=-1)
    assert (found[..., -1] - found[..., -2] > 15).all()


def test_ties_tie_in_every_row_and_their_values_differ() -> None:
    _, _, value = triple("ties", "float64")
    for row in logits("ties", "float64", None).reshape(-1, 33):
        assert len(np.unique(row)) <= 3
    assert len(np.unique(value)) == value.size


@pytest.mark.parametrize("dtype", FORMATS)
def test_cancelling_terms_are_far_larger_than_their_sum(dtype: str) -> None:
    query, key, _ = triple("qk_cancellation", dtype)
    terms = query[..., :, None, :] * key[..., None, :, :]
    assert np.median(np.abs(terms).sum(-1) / np.abs(terms.sum(-1))) > 10
    _, _, value = triple("pv_cancellation", dtype)
    assert np.median(np.abs(value).sum(-2) / np.abs(value.sum(-2))) > 10


@pytest.mark.parametrize("dtype", FORMATS)
def test_subnormal_numbers_occur_in_every_tensor(dtype: str) -> None:
    smallest_normal = {"float64": 2.0**-1022, "float32": 2.0**-126, "bfloat16": 2.0**-126, "float16": 2.0**-14}[dtype]
    found = set()
    for seed in range(20):
        for n, array in enumerate(triple("subnormal", dtype, seed=seed)):
            if ((array != 0) & (np.abs(array) < smallest_normal)).any():
                found.add(n)
    assert found == {0, 1, 2}


@pytest.mark.parametrize("dtype", FORMATS)
def test_huge_values_come_near_the_largest(dtype: str) -> None:
    tops = [np.abs(triple("huge_value", dtype, seed=seed)[2]).max() / get_format(dtype).largest for seed in range(20)]
    assert max(tops) > 0.8
    assert min(tops) < 0.25 / 33 * 1.1


def test_constant_rows_outliers_and_positive() -> None:
    for array in triple("constant_rows"):
        assert (array == array[..., :1]).all()
    assert all(0 < (np.abs(array) > 10).sum() < array.size / 4 for array in triple("outliers"))
    value = triple("positive", "bfloat16")[2]
    assert value.min() >= 1
    assert value.max() <= 2


def test_counting_makes_the_output_count_visible_keys() -> None:
    query, key, value = triple("counting", "bfloat16")
    assert not query.any()
    assert key.any()
    assert (value.sum(axis=-1) == 1).all()
    assert (value.sum(axis=-2) == [9, 8, 8, 8]).all()


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("profile", GRADIENT_PROFILES)
def test_gradients_are_finite_values_of_the_dtype(profile: str, dtype: str) -> None:
    for shape in ((2, 3, 7, 4), (1, 1, 1, 1), (0, 3, 7, 4), (2, 3, 0, 4), (2, 3, 7, 0)):
        grad = build_gradient(profile, shape, dtype, np.random.default_rng(0))
        assert grad.shape == shape
        assert np.isfinite(grad).all()
        assert is_representable(dtype, grad).all()


def test_gradient_profiles_are_what_they_are_called() -> None:
    shape, rng = (2, 3, 7, 4), np.random.default_rng(0)
    made = {name: build_gradient(name, shape, "float32", rng) for name in GRADIENT_PROFILES}
    assert (made["ones"] == 1).all()
    assert not made["zeros"].any()
    assert np.count_nonzero(made["one_hot"]) == made["one_hot"].sum() == 1
    assert np.isin(made["small_integers"], range(-3, 4)).all()
    assert (made["constant_rows"] == made["constant_rows"][..., :1]).all()
    assert np.unique(made["constant_rows"]).size == 2 * 3 * 7
    assert np.abs(made["huge"]).max() > 0.5 * get_format("float32").largest
    assert np.unique(made["gaussian"]).size == made["gaussian"].size
