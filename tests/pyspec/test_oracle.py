"""The adaptive filter decides as balls decide, element by element, wherever the observed number lies."""

from __future__ import annotations

import math

import numpy as np
import pytest
from flint import arb

from attnspec.pyspec import Oracle, make_call
from attnspec.pyspec.calls.formats import FORMATS
from attnspec.pyspec.domains.ball import outward, precision
from attnspec.pyspec.oracle.judgement import PRECISIONS, Judgement, judge_exact
from tests.pyspec.draws import draw


def verdict(j: Judgement) -> tuple[str, int, int]:
    return j.state, j.outside_count, j.undecided_count


def candidates(exact: float, bound: float) -> list[float]:
    """Observed numbers around exact ± bound: at the float nearest to it, one and two ulps to either side."""
    found = [exact, math.nan, math.inf, -math.inf, 0.0, -exact, 1e300, 5e-324]
    for edge in (exact - bound, exact + bound):
        below, above = math.nextafter(edge, -math.inf), math.nextafter(edge, math.inf)
        found += [edge, below, above, math.nextafter(below, -math.inf), math.nextafter(above, math.inf)]
    return found


def allowed_errors(rng: np.random.Generator, exact: float, own: float) -> list[float]:
    """Bounds that a filter may stumble over: none, below and about its own error, ordinary ones, all of them."""
    size = abs(exact) if math.isfinite(exact) and exact else 1.0
    some = size * 2.0 ** float(rng.integers(-60, 3))
    return [0.0, own / 3, own, size * 2.0**-53, some, 1.0, 5e-324, 1e308, math.inf]


@pytest.mark.parametrize("dtype", FORMATS)
def test_the_filter_never_changes_a_verdict(dtype: str) -> None:
    escalated = decided = 0
    for seed in range(3):
        rng = np.random.default_rng([seed, *dtype.encode()])
        call = draw(rng, dtype, most=4, profiles=("normal", "large", "tiny", "cancel", "onehot"))
        quick, slow = Oracle(call), Oracle(call, adaptive=False)
        for name in quick.tensors():
            value, own = quick.fast()[name]
            for flat in rng.choice(value.size, size=min(value.size, 2), replace=False):

                def one(a: np.ndarray, i: int = int(flat)) -> np.ndarray:
                    return a.reshape(-1)[i : i + 1]

                exact, error = float(one(value)[0]), float(one(own)[0])
                for bound in allowed_errors(rng, exact, error if math.isfinite(error) else 1.0):
                    for observed in candidates(exact, bound if math.isfinite(bound) else 1.0):
                        pair = np.array([observed]), np.array([bound])
                        first, second = quick.judge(name, *pair, one), slow.judge(name, *pair, one)
                        where = (
                            f"seed {seed} {name}[{flat}]: exact {exact!r} ± {error!r}, {observed!r} within {bound!r}"
                        )
                        assert verdict(first) == verdict(second), where
                        escalated += first.escalated_count
                        decided += 1 - first.escalated_count
    assert escalated > 100
    assert decided > 100


def test_a_difference_that_rounds_onto_the_bound_is_outside() -> None:
    """The float64 distance equals the bound, the true one passes it by a hair: only exact comparison sees it."""
    call = make_call(
        np.zeros((1, 1, 1, 1)), np.zeros((1, 1, 3, 1)), np.array([1e-10, 1e-10, 1e-10]).reshape(1, 1, 3, 1),
        dtype="float64",
    )  # fmt: skip
    # 1e-10 + 1.0 in float64 rounds; the distance from 1e-10 to -1 is above 1 by 1e-10, to 1 below it by as much.
    for observed, bound in ((-1.0, 1.0), (1.0, 1.0 - 1e-10), (1.0, math.nextafter(1.0 - 1e-10, 0.0))):
        pair = np.full((1, 1, 1, 1), observed), np.full((1, 1, 1, 1), bound)
        with precision(PRECISIONS[-1]):
            true = bool(abs(arb(1e-10) - arb(observed)) <= arb(bound))
        for adaptive in (True, False):
            assert Oracle(call, adaptive=adaptive).judge("output", *pair).inside is true


def test_exact_zero_and_empty_rows() -> None:
    """An empty row is exactly zero, its LSE exactly -inf: nothing else passes a bound of zero."""
    visible = np.array([[True, True], [False, False]]).reshape(1, 1, 2, 2)
    call = make_call(
        np.ones((1, 1, 2, 1)), np.ones((1, 1, 2, 1)), np.ones((1, 1, 2, 1)), visible=visible,
        grad_output=np.ones((1, 1, 2, 1)),
    )  # fmt: skip
    for adaptive in (True, False):
        oracle = Oracle(call, adaptive=adaptive)

        def row(a: np.ndarray) -> np.ndarray:
            return a[:, :, 1:]

        zero = np.zeros((1, 1, 1))
        for observed in (math.nan, math.inf, 0.0, -1e308, 1e308):
            assert not oracle.judge("lse", np.full((1, 1, 1), observed), zero, row).inside
            assert not oracle.judge("lse", np.full((1, 1, 1), observed), zero + 1e308, row).inside
        assert oracle.judge("lse", np.full((1, 1, 1), -math.inf), zero, row).inside
        column = zero[..., None]
        assert oracle.judge("output", column, column, row).inside
        assert oracle.judge("output", -column, column, row).inside
        for observed in (math.nan, math.inf, -math.inf, 5e-324):
            assert not oracle.judge("output", np.full((1, 1, 1, 1), observed), column, row).inside


def test_an_infinite_bound_promises_nothing() -> None:
    call = make_call(np.ones((1, 1, 1, 1)), np.ones((1, 1, 1, 1)), np.ones((1, 1, 1, 1)))
    for observed in (math.nan, math.inf, -math.inf, 7.0):
        for adaptive in (True, False):
            shape = (1, 1, 1, 1)
            judged = Oracle(call, adaptive=adaptive).judge("output", np.full(shape, observed), np.full(shape, math.inf))
            assert judged.inside
            assert judged.worst == 0.0
            assert judged.escalated_count == 0


def test_the_worst_element_is_shown() -> None:
    """Index, observed number, enclosure of the exact one, bound and ratio are those of one element."""
    rng = np.random.default_rng(0)
    call = draw(rng, "float32", profiles=("normal",))
    oracle = Oracle(call)
    value, _ = oracle.fast()["output"]
    bound = np.full(value.shape, 1e-3)
    observed = value + 5e-4
    judged = oracle.judge("output", observed, bound)
    assert judged.inside
    assert judged.worst == pytest.approx(0.5, rel=1e-6)
    assert (judged.size, judged.outside_count, judged.undecided_count) == (value.size, 0, 0)
    at = tuple(n // 2 for n in value.shape)
    observed[at] = value[at] - 4e-3
    judged = oracle.judge("output", observed, bound)
    assert not judged.inside
    assert judged.index == at
    assert judged.outside_count == 1
    assert judged.worst == pytest.approx(4.0, rel=1e-6)
    assert judged.observed == observed[at]
    assert judged.bound == 1e-3
    assert judged.exact[0] <= value[at] <= judged.exact[1] or judged.exact[1] - judged.exact[0] < 1e-12
    observed[at] = math.nan
    judged = oracle.judge("output", observed, bound)
    assert judged.index == at
    assert judged.worst == math.inf


def test_a_refuted_element_is_shown_before_a_larger_ratio_of_an_accepted_one() -> None:
    """One ulp past the bound the ratio rounds to one; it is still the element shown, with a ratio above one."""
    call = make_call(np.zeros((1, 1, 1, 1)), np.zeros((1, 1, 1, 1)), np.full((1, 1, 1, 2), 1.0))
    observed = np.array([2.0, math.nextafter(2.0, 3.0)]).reshape(1, 1, 1, 2)
    judged = Oracle(call).judge("output", observed, np.ones((1, 1, 1, 2)))
    assert not judged.inside
    assert judged.index == (0, 0, 0, 1)
    assert judged.worst > 1.0
    assert judged.outside_count == 1


def test_what_no_precision_decides_is_undecided_and_not_inside() -> None:
    """The output 1 + e^-10000 of two keys: 1 is off by less than the highest precision can tell from nothing."""
    call = make_call(
        np.ones((1, 1, 1, 1)), np.array([0.0, -10000.0]).reshape(1, 1, 2, 1), np.array([1.0, 2.0]).reshape(1, 1, 2, 1),
        dtype="float64", scale=1.0,
    )  # fmt: skip
    one, none = np.ones((1, 1, 1, 1)), np.zeros((1, 1, 1, 1))
    for adaptive in (True, False):
        oracle = Oracle(call, adaptive=adaptive)
        judged = oracle.judge("output", one, none)
        assert judged.state == "undecided"
        assert (judged.inside, judged.outside, judged.undecided) == (False, False, True)
        assert (judged.undecided_count, judged.outside_count, judged.escalated_count) == (1, 0, 1)
        assert judged.exact[0] <= 1.0 <= judged.exact[1]
        assert oracle.judge("output", one, none + 1e-250).inside
        assert oracle.judge("output", one + 2.0**-52, none).outside


def test_an_undecided_element_is_shown_before_a_larger_ratio_of_an_accepted_one() -> None:
    value = np.array([[1.0, 1.0], [2.0, 1.0]]).reshape(1, 1, 2, 2)
    call = make_call(
        np.ones((1, 1, 1, 1)), np.array([0.0, -10000.0]).reshape(1, 1, 2, 1), value, dtype="float64", scale=1.0
    )
    bound = np.array([0.0, 1e-3]).reshape(1, 1, 1, 2)
    judged = Oracle(call).judge("output", np.array([1.0, 1.0009]).reshape(1, 1, 1, 2), bound)
    assert (judged.state, judged.index) == ("undecided", (0, 0, 0, 0))
    # One element that is proved outside decides the tensor.
    judged = Oracle(call).judge("output", np.array([1.0, 1.1]).reshape(1, 1, 1, 2), bound)
    assert (judged.state, judged.index, judged.undecided_count) == ("outside", (0, 0, 0, 1), 1)


def test_values_known_exactly_need_no_oracle() -> None:
    exact, bound = np.array([0.0, 1.0, -np.inf, 2.0]), np.array([0.0, 0.5, 0.0, np.inf])
    judged = judge_exact("output", np.array([0.0, 1.25, -np.inf, np.nan]), exact, bound)
    assert (judged.state, judged.worst, judged.index) == ("inside", 0.5, (1,))
    assert (judged.exact, judged.bound, judged.size) == ((1.0, 1.0), 0.5, 4)
    judged = judge_exact("output", np.array([5e-324, np.nan, 0.0, 2.0]), exact, bound)
    assert (judged.state, judged.worst, judged.outside_count) == ("outside", math.inf, 3)
    assert judge_exact("output", np.zeros(0), np.zeros(0), np.zeros(0)).inside


def test_mismatched_shapes_raise() -> None:
    call = make_call(np.ones((1, 1, 2, 1)), np.ones((1, 1, 1, 1)), np.ones((1, 1, 1, 3)))
    good = np.zeros((1, 1, 2, 3))
    with pytest.raises(ValueError, match=r"output: observed \[1, 1, 3, 2\].*\[1, 1, 2, 3\]"):
        Oracle(call).judge("output", np.zeros((1, 1, 3, 2)), good)
    with pytest.raises(ValueError, match=r"bound \[1\]"):
        Oracle(call).judge("output", good, np.zeros(1))
    with pytest.raises(KeyError):
        Oracle(call).judge("grad_query", good, good)


@pytest.mark.parametrize("axis", range(4))
def test_nothing_to_judge(axis: int) -> None:
    """Empty tensors are inside."""
    shape = [1, 1, 2, 3]
    shape[axis] = 0
    key_shape = (shape[0], shape[1], 2, shape[3])
    call = make_call(np.zeros(shape), np.zeros(key_shape), np.zeros(key_shape), dtype="float64")
    for adaptive in (True, False):
        oracle = Oracle(call, adaptive=adaptive)
        for name in oracle.tensors():
            value, _ = oracle.fast()[name]
            assert oracle.judge(name, value, np.zeros(value.shape) + 1.0).inside


def test_outward_brackets_every_ball() -> None:
    """Floats below and above the ball, in the subnormal range and past the largest number as well."""
    rng = np.random.default_rng(0)
    largest = np.finfo(np.float64).max
    with precision(200):
        for _ in range(2000):
            mid = arb(float(rng.standard_normal())) / 3 * arb(2) ** int(rng.integers(-1080, 1030))
            ball = mid + arb(0, 1) * arb(2) ** int(rng.integers(-1200, 1000)) if rng.integers(2) else mid
            lo, hi = outward(ball)
            assert lo <= hi
            if math.isfinite(lo):
                assert bool(arb(lo) <= ball.lower())
            if math.isfinite(hi):
                assert bool(arb(hi) >= ball.upper())
            assert lo <= largest
            assert hi >= -largest
    assert outward(arb(0)) == (0.0, 0.0)
    assert outward(arb(float("-inf"))) == (-math.inf, -math.inf)
    assert outward(arb(float("nan"))) == (-math.inf, math.inf)
    assert outward(arb(2) ** 1024) == (largest, math.inf)
    assert outward(-(arb(2) ** 1024)) == (-math.inf, -largest)
