"""Four ways to one softmax, and the maps that are not softmax."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from flint import arb

from attnspec.pyspec.domains import BallDomain, ExactDomain, Float64Domain
from attnspec.pyspec.domains.ball import precision
from attnspec.pyspec.study.normalisers import (
    Normaliser,
    entmax,
    entmax_jvp,
    entmax_rows,
    log_mass,
    merge,
    native,
    online,
    online_blocks,
    safe,
    sparsemax,
    sparsemax_jvp,
    sparsemax_rows,
    weights,
)
from attnspec.pyspec.study.rows import RowError, probabilities

ROW = [0.5, -1.25, 2.0, 0.5, 3.5]
BIG = [1000.0, 999.0, 998.0]


def test_all_four_are_one_map_in_enclosures() -> None:
    dom = BallDomain()
    for scores in (ROW, BIG, [-3.0]):
        with precision(300):
            row = [arb(s) for s in scores]
            states = [native(dom, row), safe(dom, row), online(dom, row)]
            states += [online_blocks(dom, row, size) for size in range(1, len(row) + 2)]
            expected = probabilities(dom, row)
            logs = [log_mass(dom, s) for s in states]
            for state, log in zip(states, logs, strict=True):
                assert all((x - y).contains(0) for x, y in zip(weights(dom, row, state), expected, strict=True))
                assert (log - logs[0]).contains(0)


def test_native_overflow_is_visible_and_the_others_avoid_it() -> None:
    dom = Float64Domain()
    assert native(dom, BIG).mass == math.inf
    for state in (safe(dom, BIG), online(dom, BIG), online_blocks(dom, BIG, 2)):
        found = weights(dom, BIG, state)
        assert [round(x, 8) for x in found] == [0.66524096, 0.24472847, 0.09003057]


def test_low_weights_underflow_to_zero_without_harm() -> None:
    found = weights(Float64Domain(), [0.0, -800.0], safe(Float64Domain(), [0.0, -800.0]))
    assert found == [1.0, 0.0]


def test_merging_is_associative_commutative_and_has_a_unit_for_a_multiplicative_exponential() -> None:
    dom = BallDomain()
    with precision(200):
        parts = [online(dom, [arb(x) for x in row]) for row in ([1.0, 2.0], [-5.0], [3.0, 3.0, 0.5])]
        results = []
        for a, b, c in itertools.permutations(parts):
            results += [merge(dom, merge(dom, a, b), c), merge(dom, a, merge(dom, b, c))]
        first = log_mass(dom, results[0])
        assert all((log_mass(dom, r) - first).contains(0) for r in results)
        unit = Normaliser()
        assert merge(dom, unit, parts[0]) is parts[0]
        assert merge(dom, parts[0], unit) is parts[0]
        assert merge(dom, unit, unit).shift is None


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_every_normaliser_refuses_illegal_rows_first(bad: float) -> None:
    dom = Float64Domain()
    ways = [native, safe, online, lambda d, s: online_blocks(d, s, 2)]
    for way in ways:
        with pytest.raises(RowError, match=r"scores\[2\]"):
            way(dom, [0.0, 1.0, bad])
        with pytest.raises(RowError, match="empty"):
            way(dom, [])
    for other in (sparsemax, lambda s: entmax(s, 1.5)):
        with pytest.raises(RowError, match=r"scores\[0\]"):
            other([bad])
    with pytest.raises(RowError, match="seen no score"):
        weights(dom, [1.0], Normaliser())
    with pytest.raises(RowError, match="seen no score"):
        log_mass(dom, Normaliser())
    with pytest.raises(ValueError, match="block = 0"):
        online_blocks(dom, [1.0], 0)


# sparsemax


def test_sparsemax_is_the_nearest_point_of_the_simplex() -> None:
    rng = np.random.default_rng(0)
    for _ in range(30):
        s = [Fraction(int(x), 4) for x in rng.integers(-8, 9, 4)]
        p = sparsemax(s)
        assert sum(p) == 1
        assert min(p) >= 0
        # Nearest, by its variational inequality: ⟨s - p, q - p⟩ ≤ 0 at every corner q.
        for corner in range(4):
            assert sum((s[j] - p[j]) * ((j == corner) - p[j]) for j in range(4)) <= 0


def test_sparsemax_has_exact_zeros_where_softmax_has_none() -> None:
    assert sparsemax([3.0, 0.0, 0.0]) == [1, 0, 0]
    assert sparsemax([0.5, 0.25, -1.0]) == [Fraction(5, 8), Fraction(3, 8), 0]
    assert min(probabilities(Float64Domain(), [3.0, 0.0, 0.0])) > 0.04
    assert sparsemax([1.0, 1.0]) == [Fraction(1, 2), Fraction(1, 2)]
    shifted = sparsemax([100.5, 100.25, 99.0])
    assert shifted == sparsemax([0.5, 0.25, -1.0])


def test_the_derivative_of_sparsemax_is_that_of_its_support() -> None:
    s, ds = [Fraction(1, 2), Fraction(1, 4), Fraction(-1)], [Fraction(3), Fraction(-1), Fraction(5)]
    h = Fraction(1, 10**6)
    moved = sparsemax([a + h * b for a, b in zip(s, ds, strict=True)])
    slope = [(b - a) / h for a, b in zip(sparsemax(s), moved, strict=True)]
    assert sparsemax_jvp(s, ds) == slope == [2, -2, 0]
    with pytest.raises(RowError, match=r"scores\[1\] .* threshold"):
        sparsemax_jvp([1.0, 0.0], [1.0, 0.0])


# α-entmax


def test_entmax_at_two_is_sparsemax_and_tends_to_softmax_at_one() -> None:
    for row in (ROW, [0.5, 0.25, -1.0], [0.0, 0.0]):
        exact = np.array([float(x) for x in sparsemax(row)])
        assert np.abs(np.array(entmax(row, 2.0)) - exact).max() < 4 * 2.0**-52
        softmax = probabilities(Float64Domain(), row)
        gaps = [np.abs(np.array(entmax(row, 1.0 + 2.0**-k)) - softmax).max() for k in (2, 4, 6, 8)]
        # The distance halves with α - 1, so four times smaller each second step, but for its own rounding.
        assert all(later <= earlier / 3 + 2.0**-40 for earlier, later in itertools.pairwise(gaps))


def test_entmax_satisfies_its_own_equation() -> None:
    for alpha in (1.25, 1.5, 2.0, 3.0):
        p = np.array(entmax(ROW, alpha))
        assert abs(p.sum() - 1) < 2.0**-50
        on = p > 0
        # (α-1) s - p^(α-1) is one number, the threshold, on the support, and an upper bound off it.
        tau = (alpha - 1) * np.array(ROW) - p ** (alpha - 1)
        assert np.ptp(tau[on]) < 2.0**-40
        assert ((alpha - 1) * np.array(ROW)[~on] <= tau[on].max() + 2.0**-40).all()
    with pytest.raises(ValueError, match=r"alpha = 1\.0"):
        entmax(ROW, 1.0)


def test_the_derivative_of_entmax_against_differences() -> None:
    s, ds, h = np.array([0.5, 0.25, 0.0]), np.array([1.0, -2.0, 0.5]), 2.0**-18
    for alpha in (1.5, 2.0):
        up, down = (np.array(entmax(list(s + sign * h * ds), alpha)) for sign in (1, -1))
        slope = (up - down) / (2 * h)
        found = entmax_jvp(entmax(list(s), alpha), alpha, list(ds))
        assert np.abs(found - slope).max() < 2.0**-24
        assert abs(found.sum()) < 2.0**-50


def test_rows_under_visibility() -> None:
    visible = np.array([[True, True, False], [False, False, False], [False, True, False]])
    scores = np.array([[0.5, 0.25, 9.0], [1.0, 2.0, 3.0], [1.0, 2.0, 3.0]])
    found = sparsemax_rows(visible, scores)
    assert found.tolist() == [[0.625, 0.375, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    assert entmax_rows(visible[:, :0], scores[:, :0], 1.5).shape == (3, 0)


def test_the_exact_domain_needs_a_multiplicative_exponential_to_agree() -> None:
    """The rational stand-in is no homomorphism: a shift changes it, which is why shifts are a theorem about exp."""
    dom = ExactDomain()
    row = [dom.number(x) for x in (0.5, 1.0)]
    assert weights(dom, row, native(dom, row)) != weights(dom, row, safe(dom, row))
