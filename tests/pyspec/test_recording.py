"""A recording twin computes as the domain does, and what it keeps is what the spec computed on the way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attnspec.pyspec import Oracle, bounds, evaluate, make_call, named_ledgers
from attnspec.pyspec.calls.call import AttentionCall, Dropout
from attnspec.pyspec.calls.score import Additive, Bilinear, Cosine, Dot, Family
from attnspec.pyspec.domains import ExactDomain, Float64Domain
from attnspec.pyspec.domains.recording import recording
from attnspec.pyspec.oracle.bound import BoundDomain
from attnspec.pyspec.oracle.stages import BOUNDED, stage_bounds
from attnspec.pyspec.oracle.trace import trace

FAMILIES: list[Family] = [
    Dot(),
    Bilinear(np.array([[[1.0, -0.5], [0.25, 2.0]]])),
    Additive(np.ones((2, 3, 2)), np.full((2, 3, 2), -0.5), np.zeros((2, 3)), np.array([[1.0, -2.0, 0.5]] * 2)),
    Cosine("zero"),
]


def drawn(**fields: Any) -> AttentionCall:
    rng = np.random.default_rng(3)

    def numbers(*shape: int) -> np.ndarray:
        return rng.integers(-8, 9, shape) / 4

    return make_call(
        numbers(1, 2, 3, 2), numbers(1, 1, 4, 2), numbers(1, 1, 4, 3),
        **{"scale": 0.5, "grad_output": numbers(1, 2, 3, 3), **fields},
    )  # fmt: skip


@pytest.mark.parametrize("score", FAMILIES, ids=lambda f: f.name)
def test_the_twin_computes_the_same_and_the_domain_itself_keeps_nothing(score: Family) -> None:
    call, dom = drawn(score=score), Float64Domain()
    twin, stages = recording(dom)
    ours, theirs = evaluate(twin, call), evaluate(dom, call)
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(ours[n], theirs[n]) for n in ours)
    assert dom.kept is None
    assert {"dot", "scaled", "biased", "row_max", "exp", "denominator", "weights", "scaled_grad"} <= stages.keys()
    assert np.array_equal(stages["output"], ours["output"])
    assert np.array_equal(stages["exp"] / stages["denominator"], stages["weights"])


@pytest.mark.parametrize("score", FAMILIES, ids=lambda f: f.name)
def test_a_call_of_any_family_has_a_trace_and_bounds_by_stage(score: Family) -> None:
    call = drawn(score=score)
    found, allowed = trace(call), stage_bounds(call)
    assert set(allowed) <= set(BOUNDED)
    for stage, (value, error) in allowed.items():
        assert found[stage].shape == value.shape
        assert (np.abs(found[stage] - value) <= 2 * error).all(), stage


def test_domains_without_logarithms_are_recorded_too() -> None:
    twin, stages = recording(ExactDomain())
    evaluate(twin, drawn(), with_lse=False)
    assert "lse" not in stages
    assert "row_max" not in stages
    assert stages["scaled"].shape == (1, 2, 3, 4)


# weights that a call asks for


@pytest.mark.parametrize("sink", [None, np.array([0.5, -1.0])])
@pytest.mark.parametrize("asked", ["before_dropout", "after_dropout"])
def test_weights_are_a_tensor_of_a_call_that_asks_for_them(asked: str, sink: np.ndarray | None) -> None:
    z = 2.0 * (np.random.default_rng(0).random((1, 2, 3, 4)) < 0.5)
    call = drawn(dropout=Dropout(0.5, z, returned_weights=asked), sink=sink)
    oracle, allowed = Oracle(call), bounds(call, named_ledgers("float32")["math"])
    stages = trace(call)
    exact = stages["weights" if asked == "before_dropout" else "consumed"][..., :4]
    assert oracle.tensors()[2] == "weights"
    assert allowed["weights"].shape == call.score_shape
    assert oracle.judge("weights", exact, np.full(call.score_shape, 1e-12)).inside
    # They are cast to storage when they are handed over, whatever the ledger stores on its way.
    assert oracle.judge("weights", exact.astype(np.float32).astype(np.float64), allowed["weights"]).inside
    assert oracle.judge("weights", 1.01 * exact, allowed["weights"]).outside
    own = evaluate(BoundDomain(named_ledgers("float32")["math"]), call)["weights"]
    assert (allowed["weights"] >= own.bound).all()
    assert "weights" not in evaluate(Float64Domain(), drawn(dropout=Dropout(0.5, z), sink=sink))


def test_dropout_that_is_off_returns_the_weights_themselves() -> None:
    z = np.zeros((1, 2, 3, 4))
    call = drawn(dropout=Dropout(0.5, z, training=False, returned_weights="after_dropout"), sink=np.array([0.0, 1.0]))
    assert np.array_equal(evaluate(Float64Domain(), call)["weights"], trace(call)["weights"][..., :4])
