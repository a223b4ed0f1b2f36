"""Dropout: exact moments, every mask enumerated, tails of chance, and the fixed trace of the design."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from attnspec.pyspec import Dropout, make_call
from attnspec.pyspec.attention import Params
from attnspec.pyspec.attention import consumed as consume
from attnspec.pyspec.domains import ExactDomain, Float64Domain
from attnspec.pyspec.dropout import multiplier
from attnspec.pyspec.evaluate import evaluate
from attnspec.pyspec.oracle.counts import count_interval
from attnspec.pyspec.study.dropout_moments import (
    VARIANTS,
    expectation,
    inverted,
    mean_radius,
    moments,
    realisations,
    renormalised,
    renormalised_or_whole,
)

P = ["0.1", "0.2", "0.3", "0.4"]
VALUES = [[1, 0], [0, 1], [1, "0.5"], ["1/2", 2]]
RATE = "0.2"


def test_the_moments_of_the_design() -> None:
    found = moments(P, VALUES, RATE)
    assert found.row_sum_mean == 1
    assert found.row_sum_variance == Fraction(75, 1000)
    assert found.all_dropped == Fraction(16, 10000)
    assert found.mean == tuple(Fraction(x) for x in P)


def test_moments_are_those_of_all_masks_enumerated() -> None:
    p, v, rate = [Fraction(x) for x in P], [[Fraction(x) for x in row] for row in VALUES], Fraction(RATE)
    found = moments(P, VALUES, RATE)
    runs = [(inverted(p, mask, rate), chance) for mask, chance in realisations(4, rate)]
    assert sum(chance for _, chance in runs) == 1

    def mean(f):  # type: ignore[no-untyped-def]
        return sum(chance * f(row) for row, chance in runs)

    outputs = [lambda row, c=c: sum(x * v[j][c] for j, x in enumerate(row)) for c in range(2)]
    for j in range(4):
        assert found.mean[j] == mean(lambda row, j=j: row[j])
        assert found.variance[j] == mean(lambda row, j=j: (row[j] - p[j]) ** 2)
    assert found.row_sum_variance == mean(lambda row: (sum(row) - 1) ** 2)
    assert found.all_dropped == mean(lambda row: int(not any(row)))
    for c in range(2):
        assert found.output_mean[c] == mean(outputs[c])
        for d in range(2):
            spread = mean(
                lambda row, c=c, d=d: (
                    (outputs[c](row) - found.output_mean[c]) * (outputs[d](row) - found.output_mean[d])
                )
            )
            assert found.output_covariance[c][d] == spread


def test_a_sharp_row_inherits_the_variance_of_one_mask_and_a_flat_one_divides_it() -> None:
    sharp = moments([1, 0, 0, 0], VALUES, RATE)
    flat = moments(["1/4"] * 4, VALUES, RATE)
    assert sharp.row_sum_variance == Fraction(1, 4)
    assert flat.row_sum_variance == Fraction(1, 16)


def test_renormalising_biases_an_unequal_row_and_inverting_does_not() -> None:
    p = ["0.1", "0.2", "0.7"]
    row = [Fraction(x) for x in p]
    assert expectation(p, "0.5") == row
    for variant in (renormalised, renormalised_or_whole):
        assert expectation(p, "0.5", variant) != row
    dropped = expectation(p, "0.5", renormalised)
    whole = expectation(p, "0.5", renormalised_or_whole)
    # One row in eight loses everything.
    assert sum(dropped) == Fraction(7, 8)
    assert sum(whole) == 1
    assert whole == [d + x / 8 for d, x in zip(dropped, row, strict=True)]
    assert set(VARIANTS) == {"inverted", "renormalised", "renormalised_or_whole"}
    # An equal row hides the bias once nothing is lost.
    assert expectation(["1/3"] * 3, "0.5", renormalised_or_whole) == [Fraction(1, 3)] * 3


def test_what_is_no_probability_is_refused() -> None:
    for bad in ("1", "-0.1"):
        with pytest.raises(ValueError, match="expected 0 <= p < 1"):
            moments(P, VALUES, bad)
    with pytest.raises(ValueError, match="4 weights and 1 rows"):
        moments(P, [[1]], RATE)
    with pytest.raises(ValueError, match="expected 0 <= p < 1"):
        multiplier(np.ones(2), 1.0)


# the fixed trace

MASK = np.array([[1, 0, 0], [0, 1, 1]], dtype=float)
VALUE = np.array([[1, -1], [2, 0.5], [-0.5, 3]])
GRAD = np.array([[0.7, -0.4], [-0.2, 0.9]])
WEIGHTS = np.array([[0.753474, 0.246526, 0.0], [0.257122, 0.191056, 0.551822]])


def close(found: np.ndarray, shown: list, digits: int = 6) -> None:
    """The shown numbers have six decimals, and so have the weights they were made from."""
    assert np.abs(np.asarray(found, dtype=float) - np.array(shown)).max() < 3 * 10.0**-digits


def test_the_fixed_mask_trace_of_the_design() -> None:
    dom = Float64Domain()
    z = multiplier(MASK, 0.25)
    params = Params(1.0, np.ones((2, 3), dtype=bool), z)
    used = consume(dom, params, WEIGHTS)
    close(used.sum(axis=-1), [1.004632, 0.990504])
    out = used @ VALUE
    close(out, [[1.004632, -1.004632], [0.141601, 2.334659]])
    through = z * (GRAD @ VALUE.T)
    close((WEIGHTS * through).sum(axis=-1), [1.105096, 2.072873])
    close((GRAD * out).sum(axis=-1), [1.105096, 2.072873])
    close(dom.center(WEIGHTS, through), [[0.272434, -0.272434, 0.0], [-0.532981, -0.383297, 0.916279]])


def test_both_ways_to_d_agree_exactly_and_score_gradients_sum_to_zero() -> None:
    dom = ExactDomain()
    p = np.array([[dom.number(x) / dom.number(sum(row)) for x in row] for row in ((3.0, 1.0, 0.0), (1.0, 2.0, 4.0))])
    z, v, g = (dom.lift(x) for x in (multiplier(MASK, 0.5), VALUE, GRAD))
    through = z * (g @ v.T)
    assert ((p * through).sum(axis=-1) == (g * ((p * z) @ v)).sum(axis=-1)).all()
    assert all(x == 0 for x in dom.center(p, through).sum(axis=-1))


def test_a_realised_row_is_no_convex_combination() -> None:
    """A constant added to all values comes out times the realised row sum."""
    used = WEIGHTS * multiplier(MASK, 0.25)
    shift = np.array([2.0, -1.5])
    moved = used @ (VALUE + shift) - used @ VALUE
    close(moved, [[2.009265, -1.506949], [1.981008, -1.485756]])


# three zeros


def test_illegal_dropped_and_all_dropped_have_three_different_gradients() -> None:
    keep = np.array([[[[0, 1, 0, 1], [0, 0, 0, 0]]]], dtype=float)
    visible = np.array([[[[0, 1, 1, 1], [1, 1, 1, 1]]]], dtype=bool)
    rng = np.random.default_rng(3)
    call = make_call(
        rng.integers(-2, 3, (1, 1, 2, 3)).astype(float),
        rng.integers(-2, 3, (1, 1, 4, 3)).astype(float),
        rng.integers(1, 4, (1, 1, 4, 2)).astype(float),
        dtype="float64",
        visible=visible,
        bias=np.zeros((1, 1, 2, 4)),
        encoding="additive",
        grad_output=np.ones((1, 1, 2, 2)),
        dropout=Dropout(0.5, multiplier(keep, 0.5)),
    )
    found = evaluate(ExactDomain(), call, with_lse=False)
    row, lost = found["grad_bias"][0, 0]
    assert row[0] == 0
    # A dropped key keeps its place in the denominator: its score gradient is -P D.
    assert row[2] < 0
    assert all(x == 0 for x in lost)
    assert all(x == 0 for x in found["output"][0, 0, 1])
    hidden = evaluate(ExactDomain(), call.but(dropout=None), with_lse=False)["grad_bias"][0, 0]
    assert any(x != 0 for x in hidden[1])


def test_dropout_is_off_in_evaluation() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(-2, 3, (1, 1, 3, 2)).astype(float)
    call = make_call(x, x, x, dtype="float64", dropout=Dropout(0.5, multiplier(rng.random((1, 1, 3, 3)) < 0.5, 0.5)))
    assert call.dropout is not None
    off = call.but(dropout=Dropout(0.5, call.dropout.multiplier, training=False))
    plain = evaluate(ExactDomain(), call.but(dropout=None), with_lse=False)["output"]
    assert (evaluate(ExactDomain(), off, with_lse=False)["output"] == plain).all()
    assert (evaluate(ExactDomain(), call, with_lse=False)["output"] != plain).any()


# chance


def outside(trials: int, chance: Fraction, low: int, high: int) -> tuple[Fraction, Fraction]:
    def pr(k: int) -> Fraction:
        return math.comb(trials, k) * chance**k * (1 - chance) ** (trials - k)

    return sum((pr(k) for k in range(low)), Fraction(0)), sum((pr(k) for k in range(high + 1, trials + 1)), Fraction(0))


@pytest.mark.parametrize("trials", [1, 7, 40])
@pytest.mark.parametrize("chance", [Fraction(1, 5), Fraction(1, 2), Fraction(9, 10)])
@pytest.mark.parametrize("error", [Fraction(1, 20), Fraction(1, 10**9)])
def test_the_interval_of_counts_holds_its_promise_and_is_the_smallest(
    trials: int, chance: Fraction, error: Fraction
) -> None:
    low, high = count_interval(trials, chance, error)
    below, above = outside(trials, chance, low, high)
    assert below <= error / 2
    assert above <= error / 2
    assert outside(trials, chance, low + 1, high)[0] > error / 2
    assert outside(trials, chance, low, high - 1)[1] > error / 2


def test_intervals_at_the_edges() -> None:
    assert count_interval(5, 0, Fraction(1, 100)) == (0, 0)
    assert count_interval(5, 1, Fraction(1, 100)) == (5, 5)
    assert count_interval(0, Fraction(1, 2), Fraction(1, 100)) == (0, 0)
    with pytest.raises(ValueError, match="expected a binomial"):
        count_interval(5, 2, Fraction(1, 100))
    with pytest.raises(ValueError, match="expected a binomial"):
        count_interval(5, Fraction(1, 2), 0)


def test_a_rate_a_fifth_off_is_found_by_four_thousand_draws() -> None:
    low, high = count_interval(4000, Fraction(4, 5), Fraction(1, 10**9))
    assert low <= 3200 <= high
    assert not low <= 4000 * 0.76 <= high


def test_hoeffding_is_never_tighter_than_the_exact_tail() -> None:
    error = Fraction(1, 10**6)
    radii = [mean_radius(n, 0.0, 1.0, float(error)) for n in (50, 200, 800)]
    assert all(b < a for a, b in pairwise(radii))
    for n, radius in zip((50, 200, 800), radii, strict=True):
        low, high = count_interval(n, Fraction(1, 2), error)
        assert n / 2 - n * radius <= low
        assert high <= n / 2 + n * radius


def test_sampled_moments_lie_within_hoeffding_of_the_exact_ones() -> None:
    """The sampled row sum and output against their exact means, wrong by chance at most once in 10^9."""
    p, v, draws = np.array([float(x) for x in P]), np.array([[1, 0], [0, 1], [1, 0.5], [0.5, 2]]), 20_000
    exact = moments(P, VALUES, RATE)
    z = multiplier(np.random.default_rng(0).random((draws, 4)) >= 0.2, 0.2)
    each = Fraction(1, 3 * 10**9)
    top = 1 / 0.8
    assert abs((p * z).sum(axis=1).mean() - 1.0) <= mean_radius(draws, 0.0, top, float(each))
    for c in range(2):
        spread = top * float((p * v[:, c]).sum())
        found = ((p * z) @ v)[:, c].mean()
        assert abs(found - float(exact.output_mean[c])) <= mean_radius(draws, 0.0, spread, float(each))
