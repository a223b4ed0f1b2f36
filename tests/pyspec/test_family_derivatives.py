"""Score families: the backward pass is the transpose of the JVP, and the JVP is what dual numbers carry."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attnspec.pyspec import AttentionCall, evaluate_jvp
from attnspec.pyspec.attention import Inputs, Score
from attnspec.pyspec.calls.score import Bilinear
from attnspec.pyspec.domains import BallDomain, BigDomain, ExactDomain, Float64Domain
from attnspec.pyspec.domains.ball import precision
from attnspec.pyspec.dual import DualDomain
from attnspec.pyspec.evaluate import evaluate, lift_call
from tests.pyspec.family_calls import drawn

RATIONAL = ("dot", "bilinear", "additive")


def tangents(call: AttentionCall, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = {n: getattr(call, n).shape for n in ("query", "key", "value", "bias") if getattr(call, n) is not None}
    shapes |= {n: a.shape for n, a in call.score.parameters().items()}
    return {n: rng.integers(-3, 4, s).astype(float) for n, s in shapes.items()}


def paired(dom: Any, call: AttentionCall, tangent: dict[str, np.ndarray]) -> tuple[Any, Any]:
    """⟨dO, G⟩ and Σ ⟨tangent, gradient⟩."""
    moved = evaluate_jvp(dom, call, tangent)
    tensors = evaluate(dom, call, with_lse=False)
    left = (moved * dom.lift(call.grad_output)).sum()
    right = dom.number(0.0)
    for name, d in tangent.items():
        right = right + (dom.lift(d).reshape(-1) * tensors[f"grad_{name}"].reshape(-1)).sum()
    return left, right


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("name", RATIONAL)
def test_backward_is_the_transpose_of_the_jvp_exactly(name: str, shared: bool) -> None:
    call = drawn(1, name, shared=shared)
    left, right = paired(ExactDomain(), call, tangents(call, 2))
    assert left == right
    assert left != 0


def test_backward_is_the_transpose_of_the_jvp_for_cosine_in_enclosures() -> None:
    call = drawn(1, "cosine")
    with precision(200):
        left, right = paired(BallDomain(), call, tangents(call, 2))
        assert (left - right).contains(0)
        assert abs(left - right) < 2.0**-120
        assert abs(left) > 0.01


def _moving(dom: Any, call: AttentionCall, tangent: dict[str, np.ndarray]) -> tuple[Score, Inputs[Any], Inputs[Any]]:
    """How the call scores, its inputs, and their tangents as inputs."""
    params, x = lift_call(dom, call)
    dx = Inputs(
        dom.lift(tangent["query"]),
        dom.lift(tangent["key"][:, list(call.head_map)]),
        x.value,
        parameters={n: dom.lift(tangent[n]).reshape(p.shape) for n, p in x.parameters.items()},
    )
    return params.score, x, dx


def _duals(dom: DualDomain, call: AttentionCall, tangent: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Scores over dual numbers: values and derivatives."""
    score, x, dx = _moving(dom.base, call, tangent)
    dual = Inputs(
        dom.pair(x.query, dx.query),
        dom.pair(x.key, dx.key),
        x.value,
        parameters={n: dom.pair(p, dx.parameters[n]) for n, p in x.parameters.items()},
    )
    return dom.parts(score.pair(dom, dual)[0])


def _direct(dom: Any, call: AttentionCall, tangent: dict[str, np.ndarray]) -> tuple[Any, Any]:
    score, x, dx = _moving(dom, call, tangent)
    return score.pair(dom, x)[0], score.jvp(dom, x, dx)


@pytest.mark.parametrize("name", RATIONAL)
def test_the_jvp_is_what_dual_numbers_carry_exactly(name: str) -> None:
    call = drawn(3, name)
    base = ExactDomain()
    value, moved = _duals(DualDomain(base), call, tangents(call, 4))
    expected, derivative = _direct(base, call, tangents(call, 4))
    assert (value == expected).all()
    assert (moved == derivative).all()


def test_the_jvp_of_cosine_is_what_dual_numbers_carry() -> None:
    call = drawn(3, "cosine")
    base = BigDomain(200)
    value, moved = _duals(DualDomain(base), call, tangents(call, 4))
    expected, derivative = _direct(base, call, tangents(call, 4))
    for a, b in ((value, expected), (moved, derivative)):
        assert max(abs(x) for x in (a - b).reshape(-1)) < 2.0**-180


def test_the_metric_one_and_the_dot_product_are_one_map() -> None:
    call = drawn(5, "dot")
    same = call.but(score=Bilinear(np.eye(3)[None]))
    ours, theirs = (evaluate(ExactDomain(), c, with_lse=False) for c in (call, same))
    assert set(theirs) - set(ours) == {"grad_metric"}
    assert all((ours[n] == theirs[n]).all() for n in ours)


def test_gradients_of_parameters_have_their_shapes() -> None:
    for shared in (False, True):
        for name in ("bilinear", "additive"):
            call = drawn(6, name, shared=shared)
            found = evaluate(Float64Domain(), call)
            for parameter, array in call.score.parameters().items():
                assert found[f"grad_{parameter}"].shape == array.shape
