"""ALiBi slopes as a feature of a call: evaluated beside a softcap and a sink, differentiated, written down, refused."""

from __future__ import annotations

import numpy as np
import pytest

from attnspec.pyspec import AttentionCall, CallError, call_from_manifest, evaluate, evaluate_jvp
from attnspec.pyspec.alibi import distances
from attnspec.pyspec.calls.score import Bilinear
from attnspec.pyspec.domains import BallDomain, Float64Domain
from attnspec.pyspec.domains.ball import outward, precision
from attnspec.pyspec.handover.gate import refusals
from attnspec.pyspec.handover.manifest_of import arrays_of, manifest_of
from attnspec.pyspec.oracle.bound import BoundDomain
from tests.pyspec.test_modifiers import drawn

SLOPES = np.array([0.5, 0.25, -0.125, 0.0])
SINK = np.array([0.5, -1.0, 2.0, 0.0])
BESIDE = [{}, {"softcap": 2.0}, {"sink": SINK}, {"softcap": 2.0, "sink": SINK}]


def as_bias(call: AttentionCall) -> AttentionCall:
    """The call whose slopes have become a bias."""
    assert call.slopes is not None
    penalty = -call.slopes[:, None, None] * distances(call.axes.queries, call.axes.keys)
    return call.but(slopes=None, bias=penalty[None] + (0.0 if call.bias is None else call.bias), encoding="additive")


@pytest.mark.parametrize("beside", BESIDE, ids="+".join)
def test_slopes_are_a_bias(beside: dict[str, object]) -> None:
    call = drawn(3, slopes=SLOPES, **beside)
    ours, theirs = (evaluate(Float64Domain(), c) for c in (call, as_bias(call)))
    for name in ("output", "lse", "grad_query", "grad_key", "grad_value"):
        assert np.allclose(ours[name], theirs[name], rtol=1e-13, atol=1e-13)
    whole = as_bias(call)
    assert whole.bias is not None
    full = whole.but(bias=np.array(np.broadcast_to(whole.bias, call.score_shape)))
    scores_grad = evaluate(Float64Domain(), full)["grad_bias"]
    expected = -(scores_grad * distances(call.axes.queries, call.axes.keys)).sum(axis=(0, 2, 3))
    assert np.allclose(ours["grad_slopes"], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("beside", BESIDE, ids="+".join)
def test_the_slope_gradient_pairs_with_the_jvp(beside: dict[str, object]) -> None:
    call = drawn(4, slopes=SLOPES, **beside)
    assert call.grad_output is not None
    tangent = np.random.default_rng(0).standard_normal(4)
    moved = evaluate_jvp(Float64Domain(), call, {"slopes": tangent})
    assert np.isclose((moved * call.grad_output).sum(), evaluate(Float64Domain(), call)["grad_slopes"] @ tangent)


@pytest.mark.parametrize("beside", BESIDE, ids="+".join)
def test_the_bound_encloses_the_exact_values(beside: dict[str, object]) -> None:
    call, bound = drawn(8, size=4.0, slopes=SLOPES, **beside), BoundDomain()
    ours = {n: bound.lower(t) for n, t in evaluate(bound, call).items()}
    with precision(113):
        for name, exact in evaluate(BallDomain(), call).items():
            value, error = ours[name]
            for at in np.ndindex(exact.shape):
                low, high = outward(exact[at])
                assert value[at] - error[at] <= low <= high <= value[at] + error[at], (name, at)


def test_a_manifest_holds_slopes_and_refuses_what_it_cannot_hold() -> None:
    call = drawn(5, slopes=SLOPES, dropout=None)
    manifest = manifest_of(call)
    again = call_from_manifest(manifest, arrays_of(call))
    assert again.slopes is not None
    assert again.slopes.tolist() == SLOPES.tolist()
    manifest["attention_call_v1"]["score"]["slopes"]["role"] = "bias"
    assert any("score.slopes.role" in str(r) for r in refusals(manifest))
    with pytest.raises(CallError, match="a manifest speaks of dot products"):
        manifest_of(drawn(5).but(score=Bilinear(np.ones((1, 2, 2)))))
    with pytest.raises(CallError, match="slopes of a bilinear call: only dot products carry one"):
        drawn(5, slopes=SLOPES, score=Bilinear(np.ones((1, 2, 2))))
