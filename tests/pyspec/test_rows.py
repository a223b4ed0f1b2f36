"""The softmax row: log-partition, Jacobian, temperature, ties, singletons, strict domain, diagnostics."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import sympy
from flint import arb, fmpq, fmpq_mat

from attnspec.pyspec.domains import BallDomain, BigDomain, ExactDomain, Float64Domain, SymbolicDomain
from attnspec.pyspec.domains.ball import precision
from attnspec.pyspec.study.diagnostics import diagnose, span_mass
from attnspec.pyspec.study.rows import (
    RowError,
    check_row,
    check_rows,
    cold_limit,
    entropy,
    entropy_slope,
    jacobian,
    jacobian_times,
    log_partition,
    probabilities,
    reconstruct,
    sharpening,
    tempered,
    variance,
)

ROWS = ([0.5, -1.25, 2.0, 0.5], [3.0, 3.0, 1.0], [0.0, 0.0], [-7.5, 8.0, 0.25, 1.0, 1.0])


def exact_row(scores: list[float]) -> np.ndarray:
    dom = ExactDomain()
    return probabilities(dom, [dom.number(s) for s in scores])


def balls(scores: list[float]) -> list[arb]:
    return [arb(s) for s in scores]


# ∇A = p and ∇²A = J


def test_the_gradient_of_the_log_partition_is_softmax_and_its_hessian_the_jacobian() -> None:
    dom = SymbolicDomain()
    s = list(sympy.symbols("s0:3", real=True))
    a = log_partition(dom, s)
    p = probabilities(dom, s)
    j = jacobian(p)
    for i in range(3):
        assert sympy.simplify(sympy.diff(a, s[i]) - p[i]) == 0
        for k in range(3):
            assert sympy.simplify(sympy.diff(a, s[i], s[k]) - j[i, k]) == 0


@pytest.mark.parametrize("scores", ROWS)
def test_finite_differences_of_the_log_partition(scores: list[float]) -> None:
    dom = BigDomain(200)
    step = dom.number(2.0**-60)
    row = [dom.number(s) for s in scores]
    p = probabilities(dom, row)
    for i in range(len(row)):
        up, down = ([s + (step if k == i else 0) * sign for k, s in enumerate(row)] for sign in (1, -1))
        slope = (log_partition(dom, up) - log_partition(dom, down)) / (2 * step)
        # The central difference errs by h²/6 times a third derivative of A, which is at most 1.
        assert abs(slope - p[i]) < step * step


@pytest.mark.parametrize("scores", ROWS)
def test_the_jacobian_is_symmetric_kills_constants_and_has_rank_n_less_one(scores: list[float]) -> None:
    p = exact_row(scores)
    j = jacobian(p)
    n = len(scores)
    assert (j == j.T).all()
    assert all(x == 0 for x in j.sum(axis=1))
    assert all(x == 0 for x in j.sum(axis=0))
    assert fmpq_mat(n, n, list(j.reshape(-1))).rank() == n - 1


@pytest.mark.parametrize("scores", ROWS)
def test_the_jacobian_is_positive_semidefinite(scores: list[float]) -> None:
    """zᵀJz is a variance, exactly; and every principal minor is non-negative."""
    p, n = exact_row(scores), len(scores)
    j = jacobian(p)
    rng = np.random.default_rng(0)
    for _ in range(10):
        z = np.array([fmpq(int(x)) for x in rng.integers(-5, 6, n)], dtype=object)
        form = (z * (j @ z)).sum()
        assert form == variance(p, z)
        assert form >= 0
    for size in range(1, n):
        minor = fmpq_mat(size, size, list(j[:size, :size].reshape(-1))).det()
        assert minor > 0


@pytest.mark.parametrize("scores", ROWS)
def test_the_jacobian_product_needs_no_jacobian(scores: list[float]) -> None:
    dom = ExactDomain()
    p = exact_row(scores)
    z = np.array([fmpq(3 * i - 4, 7) for i in range(len(scores))], dtype=object)
    assert (jacobian_times(dom, p, z) == jacobian(p) @ z).all()


# shifts, temperature, entropy


@pytest.mark.parametrize("shift", [-1000.0, 0.125, 700.0])
def test_a_common_shift_moves_the_log_partition_and_nothing_else(shift: float) -> None:
    dom = BallDomain()
    with precision(200):
        a, b = balls(ROWS[0]), [arb(s) + arb(shift) for s in ROWS[0]]
        assert (log_partition(dom, b) - log_partition(dom, a) - arb(shift)).contains(0)
        assert all((x - y).contains(0) for x, y in zip(probabilities(dom, a), probabilities(dom, b), strict=True))


@pytest.mark.parametrize("scores", ROWS)
def test_sharpening_never_raises_the_entropy(scores: list[float]) -> None:
    dom = BallDomain()
    with precision(200):
        row = balls(scores)
        found = [entropy(dom, tempered(dom, row, arb(a) / 4)) for a in range(0, 12)]
        tie = len(set(scores)) == 1
        for lower, higher in pairwise(found):
            assert (lower - higher).contains(0) if tie else lower > higher
        assert (found[0] - arb(len(scores)).log()).contains(0)
        for a in (arb(0), arb(1), arb(5) / 2):
            slope = entropy_slope(dom, row, a)
            assert slope.contains(0) if tie or a == 0 else slope < 0


def test_the_slope_of_the_entropy_and_of_the_weights_are_derivatives_in_alpha() -> None:
    dom = SymbolicDomain()
    alpha = sympy.symbols("alpha", positive=True)
    s = [sympy.Integer(x) for x in (2, 0, 1)]
    p = tempered(dom, s, alpha)
    assert all(sympy.simplify(sympy.diff(x, alpha) - d) == 0 for x, d in zip(p, sharpening(dom, s, alpha), strict=True))
    h = -sum(x * sympy.log(x) for x in p)
    difference = sympy.diff(h, alpha) - entropy_slope(dom, s, alpha)
    assert all(abs(difference.subs(alpha, v).evalf(40)) < 1e-30 for v in (sympy.Rational(1, 3), 1, 4))


def test_tied_maxima_share_the_limit_equally() -> None:
    assert cold_limit([3.0, 3.0, 1.0]) == [Fraction(1, 2), Fraction(1, 2), 0]
    assert cold_limit([1.0, 2.0]) == [0, 1]
    dom = BallDomain()
    with precision(200):
        for alpha in (1, 8, 32):
            p = tempered(dom, balls([3.0, 3.0, 1.0]), arb(alpha))
            assert (p[0] - p[1]).contains(0)
            # The third weight is less than exp(-2α), so the first two are within half of that of ½.
            assert p[2] < (arb(-2) * alpha).exp()
            assert abs(p[0] - arb(1) / 2) <= (arb(-2) * alpha).exp()


@pytest.mark.parametrize("score", [-1e300, 0.0, 7.25])
def test_a_single_legal_key_has_weight_one_and_no_derivative(score: float) -> None:
    p = probabilities(Float64Domain(), [score])
    assert p.tolist() == [1.0]
    assert jacobian(p).tolist() == [[0.0]]
    assert cold_limit([score]) == [1]
    assert log_partition(Float64Domain(), [score]) == score
    assert entropy(Float64Domain(), p) == 0.0


def test_large_scores_of_the_design() -> None:
    p = probabilities(Float64Domain(), [1000.0, 999.0, 998.0])
    assert np.round(p, 8).tolist() == [0.66524096, 0.24472847, 0.09003057]


# reconstruction


@pytest.mark.parametrize("scores", [*ROWS, [1000.0, 999.0, 998.0]])
def test_weights_come_back_from_scores_and_log_partition(scores: list[float]) -> None:
    dom = BallDomain()
    with precision(200):
        row = balls(scores)
        back = reconstruct(dom, row, log_partition(dom, row))
        assert all((x - y).contains(0) for x, y in zip(back, probabilities(dom, row), strict=True))
    floats = reconstruct(Float64Domain(), scores, log_partition(Float64Domain(), scores))
    direct = probabilities(Float64Domain(), scores)
    # Absolute error of s - A, in units of float64 at the size of the scores, carries over as a relative one.
    size = max(abs(s) for s in scores) + math.log(len(scores)) + 1
    assert np.all(np.abs(floats - direct) <= 8 * 2.0**-53 * size * direct)


# strict domain


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_legal_score_that_is_not_finite_is_refused_with_its_coordinate(bad: float) -> None:
    for function in (probabilities, log_partition):
        with pytest.raises(RowError, match=r"scores\[1\] = (nan|inf|-inf): a legal score is finite"):
            function(Float64Domain(), [0.0, bad, 1.0])
    with pytest.raises(RowError, match=r"scores\[2, 0, 1\]"):
        check_row([0.0, bad], (2, 0))
    with precision(113), pytest.raises(RowError, match=r"scores\[0\]"):
        check_row([arb(bad)])
    scores = np.zeros((2, 3))
    scores[1, 2] = bad
    visible = np.ones((2, 3), dtype=bool)
    with pytest.raises(RowError, match=r"scores\[1, 2\]"):
        check_rows(visible, scores)
    visible[1, 2] = False
    check_rows(visible, scores)


def test_an_empty_row_is_refused_before_arithmetic() -> None:
    with pytest.raises(RowError, match="scores is empty: softmax needs a legal key"):
        probabilities(Float64Domain(), [])
    with pytest.raises(RowError, match=r"scores\[1\] is empty"):
        check_rows(np.array([[True], [False]]), np.zeros((2, 1)))
    with pytest.raises(RowError, match="empty"):
        cold_limit([])


# diagnostics


def test_diagnostics_of_plain_rows() -> None:
    weights = np.array([[0.25, 0.25, 0.25, 0.25], [1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    visible = np.array([[1, 1, 1, 1], [1, 0, 0, 0], [1, 1, 1, 0], [0, 0, 0, 0]], dtype=bool)
    found = diagnose(weights, visible, top=2)
    assert found.keys.tolist() == [4, 1, 3, 0]
    assert found.entropy[:3].tolist() == [math.log(4), 0.0, math.log(2)]
    assert found.normalised_entropy[0] == 1.0
    assert found.normalised_entropy[1] == 0.0
    assert found.normalised_entropy[2] == math.log(2) / math.log(3)
    assert found.effective_support[0] == pytest.approx(4.0, rel=2**-50)
    assert found.top_mass[:3].tolist() == [0.5, 1.0, 1.0]
    assert found.maximum[:3].tolist() == [0.25, 1.0, 0.5]
    assert found.gap[:3].tolist() == [0.0, math.inf, 0.0]
    for name in ("entropy", "normalised_entropy", "effective_support", "top_mass", "maximum", "gap"):
        assert np.isnan(getattr(found, name)[3]), name


def test_the_gap_is_the_difference_of_the_two_largest_scores() -> None:
    scores = [0.5, 3.0, 1.25]
    found = diagnose(probabilities(Float64Domain(), scores)[None], np.ones((1, 3), dtype=bool))
    assert abs(found.gap[0] - 1.75) < 2.0**-50


def test_hidden_weights_do_not_count_and_evidence_spans_add_up() -> None:
    weights = np.array([[0.25, np.nan, 0.75]])
    visible = np.array([[True, False, True]])
    assert diagnose(weights, visible).maximum.tolist() == [0.75]
    assert span_mass(np.array([[0.2, 0.3, 0.5]]), np.array([[False, True, True]])).tolist() == [0.8]
    with pytest.raises(RowError, match=r"scores\[0, 1\] = nan|\[0, 1\]"):
        diagnose(weights, np.ones((1, 3), dtype=bool))
    with pytest.raises(ValueError, match="top = 0"):
        diagnose(weights, visible, top=0)


def test_a_mean_over_rows_hides_what_rows_do() -> None:
    """One copying and one averaging row: each is extreme, their mean is neither."""
    weights = np.array([[1.0, 0.0, 0.0, 0.0], [0.25] * 4])
    found = diagnose(weights, np.ones((2, 4), dtype=bool))
    assert found.effective_support.tolist() == [1.0, pytest.approx(4.0, rel=2**-50)]


def symbols(n: int) -> list[Any]:
    return list(sympy.symbols(f"s0:{n}", real=True))


def test_a_symbolic_row_is_no_error() -> None:
    check_row(symbols(2))
    with pytest.raises(RowError):
        check_row([sympy.oo])
