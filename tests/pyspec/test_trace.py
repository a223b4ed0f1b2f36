"""The trace: stages, labels, three ways to compute it that agree, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attnspec.pyspec import AttentionCall, CallError, evaluate, make_call
from attnspec.pyspec.calls.call import Dropout
from attnspec.pyspec.domains import BallDomain, ExactDomain, Float64Domain
from attnspec.pyspec.domains.ball import precision
from attnspec.pyspec.domains.big import BigDomain
from attnspec.pyspec.dropout import multiplier
from attnspec.pyspec.oracle.ledger import NUMPY_FLOAT64
from attnspec.pyspec.oracle.stages import BOUNDED, first_leaving, stage_bounds
from attnspec.pyspec.oracle.trace import SINK, STAGES, TraceError, first_difference, trace
from tests.pyspec.trace_references import trace_by_lists, trace_by_rows

REFERENCES = (trace_by_rows, trace_by_lists)
SLOPES = np.array([0.5, -0.25])
MODIFIERS: tuple[dict[str, Any], ...] = (
    {},
    {"softcap": 2.0},
    {"sink": np.array([0.0, 1.5])},
    {"softcap": 2.0, "sink": np.array([-1.0, 0.5])},
    {"slopes": SLOPES},
    {"softcap": 2.0, "sink": np.array([-1.0, 0.5]), "slopes": SLOPES},
)


def drawn(seed: int, **fields: Any) -> AttentionCall:
    """Grouped heads, bias broadcast along keys' heads, a hidden key, an empty row, dropout; small dyadic numbers."""
    rng = np.random.default_rng(seed)

    def numbers(*shape: int) -> np.ndarray:
        return rng.integers(-8, 9, shape) / 4

    visible = rng.random((1, 2, 3, 4)) < 0.7
    visible[:, :, 2] = False
    visible[:, :, 0, 0] = True
    return make_call(
        numbers(2, 2, 3, 2),
        numbers(2, 1, 4, 2),
        numbers(2, 1, 4, 3),
        **{
            "visible": visible,
            "bias": numbers(1, 2, 3, 4),
            "encoding": "additive",
            "grad_output": numbers(2, 2, 3, 3),
            "dropout": Dropout(0.5, 2.0 * (rng.random((2, 2, 3, 4)) < 0.6)),
            **fields,
        },
    )


P = [[0.753474, 0.246526, 0.0], [0.257122, 0.191056, 0.551822]]
M = np.array([[1, 0, 0], [0, 1, 1]], dtype=bool)
V = np.array([[1.0, -1.0], [2.0, 0.5], [-0.5, 3.0]])
G = np.array([[0.7, -0.4], [-0.2, 0.9]])


def fixed() -> AttentionCall:
    """The fixed trace: scores log P as the bias of a query without width, dropout at 0.25."""
    seen = np.array(P) > 0
    return make_call(
        np.zeros((1, 1, 2, 0)), np.zeros((1, 1, 3, 0)), V[None, None], dtype="float64",
        bias=np.log(np.where(seen, P, 1.0))[None, None], visible=seen[None, None], encoding="additive",
        dropout=Dropout(0.25, multiplier(M, 0.25)[None, None]), grad_output=G[None, None],
    )  # fmt: skip


@pytest.mark.parametrize("how", [trace, *REFERENCES])
def test_the_fixed_trace(how: Any) -> None:
    found = how(fixed())

    def printed(stage: str, wanted: Any) -> None:
        # The printed weights have six digits, so what follows from them may be off by their rounding.
        assert np.abs(found[stage][0, 0] - np.array(wanted)).max() < 5e-6, stage

    printed("weights", P)
    printed("multiplier", np.where(M, 4 / 3, 0.0))
    printed("consumed", [[1.004632, 0.0, 0.0], [0.0, 0.254741, 0.735763]])
    assert np.abs(found["consumed"][0, 0].sum(-1) - [1.004632, 0.990504]).max() < 2e-6
    printed("output", [[1.004632, -1.004632], [0.141601, 2.334659]])
    printed("delta", [[1.105096], [2.072873]])
    assert np.abs((found["output"] * G).sum(-1, keepdims=True) - found["delta"]).max() < 1e-15
    printed("scores_grad", [[0.272434, -0.272434, 0.0], [-0.532981, -0.383297, 0.916279]])
    assert found["masked"][0, 0, 0, 2] == -np.inf
    # Three zeros: hidden, dropped, and the score gradient of a dropped key, which is none.
    assert found["weights"][0, 0, 0, 2] == 0.0
    assert found["consumed"][0, 0, 0, 1] == 0.0
    assert found["scores_grad"][0, 0, 0, 1] != 0.0


@pytest.mark.parametrize("fields", MODIFIERS, ids=lambda f: "+".join(f) or "plain")
@pytest.mark.parametrize("how", REFERENCES, ids=lambda f: f.__name__)
def test_references_equal_the_trace_exactly_over_rationals(how: Any, fields: dict[str, Any]) -> None:
    for seed in range(6):
        call = drawn(seed, **fields)
        ours, theirs = trace(call, ExactDomain()), how(call, ExactDomain())
        absent = {f"grad_{n}" for n in ("sink", "slopes") if n not in fields}
        assert set(ours) == set(theirs) == set(STAGES) - {"lse"} - absent
        assert first_difference(ours, theirs) is None


@pytest.mark.parametrize("fields", MODIFIERS, ids=lambda f: "+".join(f) or "plain")
@pytest.mark.parametrize("how", REFERENCES, ids=lambda f: f.__name__)
def test_references_agree_in_floats_within_the_bound(how: Any, fields: dict[str, Any]) -> None:
    call = drawn(11, **fields)
    allowed = {n: 2 * error for n, (_, error) in stage_bounds(call).items()}
    ours, theirs = trace(call), how(call)
    assert set(ours) == set(theirs)
    for stage in ("row_max", "masked", "shifted", "exp", "denominator", "delta"):
        assert np.allclose(ours[stage], theirs[stage], rtol=1e-14, atol=1e-14)
    allowed |= {n: np.full(ours[n].shape, 1e-13) for n in ours if n not in allowed}
    assert first_difference(ours, theirs, allowed) is None
    assert first_difference(ours, trace(call.but(query=1.5 * call.query)), allowed) is not None


def test_tensors_of_the_trace_are_those_of_evaluate() -> None:
    for fields in MODIFIERS:
        call = drawn(5, **fields)
        found, exact = trace(call), evaluate(Float64Domain(), call)
        for name, tensor in exact.items():
            assert np.allclose(found[name].ravel(), tensor.ravel(), rtol=1e-15, atol=0), name


def test_every_bounded_stage_encloses_the_exact_trace() -> None:
    call = drawn(7, softcap=2.0, sink=np.array([0.5, -1.0]), slopes=SLOPES)
    bounds = stage_bounds(call)
    assert set(bounds) == set(BOUNDED)
    with precision(113):
        exact = trace(call, BallDomain())
        for stage, (value, error) in bounds.items():
            balls = exact[stage]
            for at in np.ndindex(value.shape):
                if stage == "lse" and np.isinf(value[at]):
                    continue
                assert abs(float((balls[at] - value[at]).mid())) <= error[at], (stage, at)


def test_other_domains_trace_too() -> None:
    call = drawn(8, softcap=2.0)
    big = BigDomain()
    assert abs(float(trace(call, big)["output"][0, 0, 0, 0]) - trace(call)["output"][0, 0, 0, 0]) < 1e-14


def test_stages_are_read_only() -> None:
    found = trace(drawn(1))
    for stage in found:
        with pytest.raises(ValueError, match="read-only"):
            found[stage][...] = 0
    with pytest.raises(TypeError):
        found.stages["dot"] = np.zeros(1)  # type: ignore[index]
    with pytest.raises(TraceError, match="stage = 'softmax': this trace has dot, scaled"):
        found["softmax"]


def test_labels_name_rows_by_identity() -> None:
    call = drawn(1, sink=np.array([0.0, 1.0]))
    found = trace(call, query_ids=["a", "b", "c"], key_ids=list("wxyz"), value_ids=list("wxyz"))
    assert found.label("weights", (1, 0, 2, 3)) == "weights [batch 1, head 0, c → z]"
    assert found.label("weights", (1, 0, 2, 4)) == f"weights [batch 1, head 0, c → {SINK}]"
    assert found.label("output", (0, 1, 0, 2)) == "output [batch 0, head 1, a, value feature 2]"
    assert found.label("grad_key", (0, 0, 1, 0)) == "grad_key [batch 0, key head 0, x, feature 0]"
    assert found.label("row_max", (0, 1, 1, 0)) == "row_max [batch 0, head 1, b]"


def test_reordering_keys_without_values_is_refused_by_name() -> None:
    call = drawn(2)
    order = [2, 0, 3, 1]
    moved = call.but(key=call.key[:, :, order], visibility=call.visibility)
    with pytest.raises(TraceError, match="key row 0 is 's2' and value row 0 is 's0': they must be one source"):
        trace(moved, key_ids=[f"s{j}" for j in order], value_ids=[f"s{j}" for j in range(4)])
    with pytest.raises(TraceError, match="value_ids: expected the names"):
        trace(moved, key_ids=[f"s{j}" for j in order])
    with pytest.raises(TraceError, match="key_ids has 2 names: expected one for each of 4 rows"):
        trace(call, key_ids=["a", "b"], value_ids=["a", "b"])
    with pytest.raises(TraceError, match="names a row twice"):
        trace(call, key_ids=list("aabc"), value_ids=list("aabc"))


def test_reordering_keys_alone_parts_from_the_trace_and_with_everything_does_not() -> None:
    from attnspec.strategies.derived import take_keys

    names = [f"s{j}" for j in range(4)]
    order = np.array([2, 0, 3, 1])
    # Slopes depend on the order of keys.
    for fields in (f for f in MODIFIERS if "slopes" not in f):
        call = drawn(3, **fields)
        ours = trace(call, ExactDomain(), key_ids=names, value_ids=names)
        renamed = [names[j] for j in order]
        together = trace(take_keys(call, order), ExactDomain(), key_ids=renamed, value_ids=renamed)
        assert first_difference(ours, together) is None
        # The same names on values that moved alone: every product is shaped right, and the outputs are wrong.
        alone = trace(call.but(value=call.value[:, :, order]), ExactDomain(), key_ids=names, value_ids=names)
        parted = first_difference(ours, alone)
        assert parted is not None
        assert parted.stage == "output"
    other = trace(call, ExactDomain())
    with pytest.raises(TraceError, match="different key rows"):
        first_difference(ours, other)


def test_only_declared_metadata_broadcasts() -> None:
    call = drawn(4, bias=np.array([[[[0.5]], [[-0.25]]]]), visible=np.ones((1, 1, 1, 4), dtype=bool),
                 dropout=Dropout(0.5, np.full((1, 1, 3, 1), 2.0)))  # fmt: skip
    found = trace(call)
    assert dict(found.stored) == {"mask": (1, 1, 1, 4), "bias": (1, 2, 1, 1), "multiplier": (1, 1, 3, 1)}
    assert found["biased"].shape == found["multiplier"].shape == found.visible.shape == (2, 2, 3, 4)
    for name in ("query", "key", "value"):
        array = getattr(call, name)
        with pytest.raises(CallError):
            call.but(**{name: array[:1]})
        with pytest.raises(CallError):
            call.but(**{name: array[:, :, :1] if name != "query" else array[:, :1]})


def test_the_first_stage_that_leaves_its_interval_is_named() -> None:
    call = drawn(6, softcap=2.0)
    right = dict(trace(call).stages)
    assert first_leaving(call, NUMPY_FLOAT64, right) is None
    for stage in BOUNDED:
        if stage not in right:
            continue
        wrong = {n: a.copy() for n, a in right.items()}
        at = (0, 0, 0, 0)
        wrong[stage][at] += 0.01
        left = first_leaving(call, NUMPY_FLOAT64, wrong)
        assert left is not None
        assert (left.stage, left.index) == (stage, at)
        assert not left.lower <= left.observed <= left.upper
        assert left.lower <= left.exact <= left.upper
    with pytest.raises(ValueError, match="stage dot has shape"):
        first_leaving(call, NUMPY_FLOAT64, {"dot": np.zeros(3)})


@pytest.mark.parametrize("how", [trace, *REFERENCES])
def test_zero_sizes_trace(how: Any) -> None:
    call = make_call(np.zeros((1, 1, 2, 0)), np.zeros((1, 1, 0, 0)), np.zeros((1, 1, 0, 3)))
    found = how(call)
    assert found["dot"].shape == (1, 1, 2, 0)
    assert not found["output"].any()
