"""ALiBi slopes: distances, gradient and tangent, the same in every number system."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from attnspec.pyspec import alibi, attention
from attnspec.pyspec.arrays import ArrayDomain
from attnspec.pyspec.attention import Inputs, Params
from attnspec.pyspec.domains import BallDomain, ExactDomain, Float64Domain
from attnspec.pyspec.domains.ball import precision
from attnspec.pyspec.domains.big import BigDomain
from attnspec.pyspec.dual import DualDomain
from attnspec.pyspec.oracle.bound import BoundDomain
from attnspec.pyspec.oracle.ledger import NUMPY_FLOAT64
from tests.pyspec.sloped import column, drawn, run

SIZES = [(3, 5), (5, 3), (4, 4), (1, 6), (6, 1), (0, 3), (3, 0)]


def test_distances_run_from_the_lower_right_corner() -> None:
    assert alibi.distances(2, 4).tolist() == [[2, 1, 0, 1], [3, 2, 1, 0]]
    assert alibi.distances(4, 2).tolist() == [[2, 3], [1, 2], [0, 1], [1, 0]]
    assert alibi.distances(1, 5).tolist() == [[4, 3, 2, 1, 0]]
    for queries, keys in SIZES:
        assert alibi.distances(queries, keys).shape == (queries, keys)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_reach_holds_every_way_of_counting(sizes: tuple[int, int]) -> None:
    away = alibi.distances(*sizes)
    far, j = alibi.reach(away), np.arange(sizes[1])
    assert far.shape == away.shape
    assert (far >= away).all()
    assert (far >= j).all()
    assert (far >= sizes[1] - 1 - j).all()


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_gradient_pairs_with_tangent(sizes: tuple[int, int]) -> None:
    """Exactly: ⟨output tangent along the slopes, G⟩ = ⟨slope tangent, slope gradient⟩, summed over the heads."""
    dom, x = ExactDomain(), drawn(1, "bfloat16", sizes)
    p = Params(x.scale, x.visible)

    def sloped(slopes: np.ndarray, bias: np.ndarray, **tensors: np.ndarray) -> Inputs[np.ndarray]:
        slope_bias = alibi.slope_bias(dom, dom.lift(column(slopes)), x.away)
        return Inputs(
            **{n: dom.lift(t) for n, t in tensors.items()}, bias=dom.add("biased", dom.lift(bias), slope_bias)
        )

    zeros = {n: np.zeros_like(getattr(x, n)) for n in ("query", "key", "value")}
    inputs = sloped(x.slopes, x.bias, query=x.query, key=x.key, value=x.value)
    moved = np.array([1.0, -2.0, 0.5])
    tangent = sloped(moved, np.zeros_like(x.bias), **zeros)
    grad = dom.lift(x.grad)
    found = attention.backward(dom, p, inputs, grad).bias
    gm = alibi.slope_gradient(dom, found, x.away, batch=2)
    assert gm.shape == (1, 3, 1, 1)
    left = (attention.jvp(dom, p, inputs, tangent) * grad).sum()
    assert left == (gm * dom.lift(column(moved))).sum()


def test_gradient_is_the_derivative() -> None:
    """Central differences of ⟨output, G⟩ in each slope."""
    dom, x, step = Float64Domain(), drawn(2), 1e-6
    gm = run(dom, x)["grad_slopes"][0, :, 0, 0]
    for head in range(3):
        along = np.zeros(3)
        along[head] = step
        up, down = (run(dom, replace(x, slopes=x.slopes + sign * along))["output"] for sign in (1, -1))
        assert ((up - down) * x.grad).sum() / (2 * step) == pytest.approx(gm[head], rel=1e-6, abs=1e-8)


def test_dual_numbers_give_the_gradient() -> None:
    """The output over dual numbers, one slope moving at a time, paired with G, in rationals."""
    base, x = ExactDomain(), drawn(3, "bfloat16", (2, 3))
    dom = DualDomain(base)
    gm = run(base, x)["grad_slopes"]
    for head in range(3):
        move = column(np.eye(3)[head])
        slopes = dom.pair(base.lift(column(x.slopes)), base.lift(move))
        bias = dom.add("biased", dom.lift(x.bias), alibi.slope_bias(dom, slopes, x.away))
        inputs = Inputs(dom.lift(x.query), dom.lift(x.key), dom.lift(x.value), bias)
        _, eps = dom.parts(attention.forward(dom, Params(x.scale, x.visible), inputs))
        assert (eps * base.lift(x.grad)).sum() == gm[0, head, 0, 0]


def test_zero_slopes_are_plain_attention() -> None:
    dom, x = Float64Domain(), replace(drawn(4), slopes=np.zeros(3))
    inputs = Inputs(x.query, x.key, x.value, x.bias)
    assert (run(dom, x)["output"] == attention.forward(dom, Params(x.scale, x.visible), inputs)).all()


@pytest.mark.parametrize("causal", [False, True])
def test_number_systems_agree(causal: bool) -> None:
    """Float64 and many digits lie in the balls, and the float64 values of the bound within their own bound."""
    x = drawn(5, causal=causal)
    with precision(120):
        balls = BallDomain()
        enclosed = {n: balls.lower(t) for n, t in run(balls, x).items()}
    big = BigDomain()
    many = {n: big.lower(t) for n, t in run(big, x).items()}
    bound = BoundDomain(NUMPY_FLOAT64)
    allowed = {n: bound.lower(t) for n, t in run(bound, x).items()}
    plain = run(Float64Domain(), x)
    for name, (lo, hi) in enclosed.items():
        assert ((many[name] >= lo) & (many[name] <= hi)).all(), name
        value, error = allowed[name]
        for seen in (value, plain[name]):
            assert ((seen >= lo - error) & (seen <= hi + error)).all(), name
        assert (error < 1e-12).all(), name


def test_domains_of_numbers_need_no_reach() -> None:
    """`along` is a plain product where numbers carry no error."""
    dom: ArrayDomain = Float64Domain()
    away = alibi.distances(2, 3)
    assert (dom.along("alibi", column(np.ones(1)), -away, alibi.reach(away)) == -away).all()
