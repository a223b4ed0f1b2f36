"""Cosine scores stay within one, and short vectors follow the policy that the family names."""

from __future__ import annotations

from fractions import Fraction
from math import factorial

import numpy as np
import pytest

from attnspec.pyspec import Oracle, named_ledgers
from attnspec.pyspec.calls.errors import FamilyError
from attnspec.pyspec.calls.score import Cosine
from attnspec.pyspec.domains import BallDomain, Float64Domain
from attnspec.pyspec.domains.ball import precision
from attnspec.pyspec.evaluate import evaluate, lift_call
from attnspec.pyspec.oracle.bound import BoundDomain
from attnspec.pyspec.study.diagnostics import sharpest_cosine_weight
from tests.pyspec.family_calls import cosine_call, scores


def test_cosine_scores_stay_within_one() -> None:
    rng = np.random.default_rng(0)
    with precision(113):
        for _ in range(20):
            size = 10.0 ** rng.uniform(-6, 6)
            q = (size * rng.standard_normal((3, 4))).tolist()
            found = scores(cosine_call(q, [*q, [1.0, 0.0, 0.0, 0.0]], Cosine()), BallDomain())
            assert all(abs(x) - 1 < 2.0**-100 for x in found.reshape(-1))
            assert all((found[i, i] - 1).contains(0) for i in range(3))


def test_a_query_of_length_zero_is_refused_by_default() -> None:
    with pytest.raises(FamilyError, match=r"query\[0, 0, 1\] has length zero.*zero_norm"):
        cosine_call([[1.0, 0.0], [0.0, 0.0]], [[1.0, 1.0]], Cosine())
    with pytest.raises(FamilyError, match=r"key\[0, 0, 0\] has length zero"):
        cosine_call([[1.0, 0.0]], [[0.0, 0.0]], Cosine())


def test_policy_zero_gives_score_zero_and_no_gradient() -> None:
    call = cosine_call([[0.0, 0.0], [3.0, 4.0]], [[1.0, 0.0], [0.0, 2.0]], Cosine("zero"))
    assert scores(call).tolist() == [[0.0, 0.0], [0.6, 0.8]]
    call = call.but(grad_output=np.ones((1, 1, 2, 1)), value=np.array([[[[1.0], [2.0]]]]))
    gradient = evaluate(Float64Domain(), call)["grad_query"][0, 0]
    assert gradient[0].tolist() == [0.0, 0.0]
    assert gradient[1].any()


def test_policy_clamp_divides_short_vectors_by_epsilon_in_both_passes() -> None:
    call = cosine_call([[0.25, 0.0], [3.0, 4.0]], [[1.0, 0.0], [0.0, 2.0]], Cosine("clamp", 0.5))
    assert scores(call).tolist() == [[0.5, 0.0], [0.6, 0.8]]
    params, x = lift_call(Float64Domain(), call)
    g = np.ones((1, 1, 2, 2))
    found = params.score.pair(Float64Domain(), x)[1](g)[0][0, 0]
    # Below the clamp the length is a constant: û = q / ε, so the gradient is Σ k̂ / ε.
    assert found[0].tolist() == [2.0, 2.0]
    bound = BoundDomain(named_ledgers("float64")["math"])
    near = cosine_call([[0.5, 0.0]], [[1.0, 0.0]], Cosine("clamp", 0.5))
    edge, lifted = lift_call(bound, near)
    grad_query = edge.score.pair(bound, lifted)[1](bound.lift(np.ones((1, 1, 1, 1))))[0]
    assert np.isinf(grad_query.bound).any()


def test_the_policy_itself_is_checked() -> None:
    with pytest.raises(FamilyError, match="zero_norm = 'ignore': expected one of reject, zero, clamp"):
        Cosine("ignore")
    with pytest.raises(FamilyError, match="'clamp' needs an epsilon > 0"):
        Cosine("clamp")
    with pytest.raises(FamilyError, match="the other policies have none"):
        Cosine("zero", 1e-6)


def test_the_sharpest_cosine_weight_among_128_keys_is_about_0_055() -> None:
    with precision(113):
        exact = sharpest_cosine_weight(BallDomain(), 128)
        # e² by its series.
        square = sum(Fraction(2**n, factorial(n)) for n in range(30))
        assert abs(exact - float(1 / (1 + 127 / square))) < 1e-15
    assert round(float(exact.mid()), 3) == 0.055
    call = cosine_call([[1.0, 0.0]], [[1.0, 0.0]] + [[-1.0, 0.0]] * 127, Cosine())
    value = np.zeros((1, 1, 128, 1))
    value[0, 0, 0] = 1.0
    output = Oracle(call.but(value=value)).enclosure("output")
    assert output[0].item() <= float(exact.mid()) <= output[1].item()
