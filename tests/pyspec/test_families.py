"""Score families: derivative, transpose, bounds, reductions to dot products, and what is refused."""

from __future__ import annotations

from fractions import Fraction
from math import factorial
from typing import Any

import numpy as np
import pytest

from attnspec.pyspec import AttentionCall, Ledger, Oracle, bounds, evaluate_jvp, make_call, named_ledgers
from attnspec.pyspec.attention import Inputs, Params, Score, backward, forward
from attnspec.pyspec.calls.errors import FamilyError
from attnspec.pyspec.calls.formats import FORMATS, round_to
from attnspec.pyspec.calls.score import FAMILIES, Additive, Bilinear, Cosine, Dot, Family
from attnspec.pyspec.domains import BallDomain, BigDomain, ExactDomain, Float64Domain
from attnspec.pyspec.domains.ball import precision
from attnspec.pyspec.dual import DualDomain
from attnspec.pyspec.evaluate import evaluate, lift_call
from attnspec.pyspec.handover.reduce_to_dot import reduce_to_dot
from attnspec.pyspec.oracle.bound import BoundDomain
from attnspec.pyspec.oracle.ledger import every_operation_stored
from attnspec.pyspec.study.diagnostics import sharpest_cosine_weight

RATIONAL = ("dot", "bilinear", "additive")


def drawn(seed: int, name: str, *, dtype: str = "float32", shared: bool = False, bias: bool = True) -> AttentionCall:
    """A call of that family: grouped heads, an empty row, a bias, and parameters per head or shared."""
    rng = np.random.default_rng([seed, FAMILIES.index(name)])

    def r(*shape: int) -> np.ndarray:
        return round_to(dtype, rng.standard_normal(shape))

    visible = rng.random((2, 2, 4, 5)) < 0.7
    visible[0, 0, 1] = False
    heads, width = (1 if shared else 2), 3
    families: dict[str, Family] = {
        "dot": Dot(),
        "bilinear": Bilinear(r(heads, 3, 3)),
        "additive": Additive(r(heads, width, 3), r(heads, width, 3), r(heads, width), r(heads, width)),
        "cosine": Cosine("zero"),
    }
    query = r(2, 2, 4, 3)
    if name == "cosine":
        query[0, 1, 2] = 0.0
    call = make_call(
        query,
        r(2, 1, 5, 3),
        r(2, 1, 5, 2),
        dtype=dtype,
        visible=visible,
        scale=0.75,
        bias=r(2, 1, 4, 5) if bias else None,
        encoding="additive" if bias else "bool",
        grad_output=r(2, 2, 4, 2),
    )
    return call.but(score=families[name])


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


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("shared", [False, True])
def test_float64_bounds_hold_the_enclosures(name: str, shared: bool) -> None:
    call = drawn(7, name, shared=shared)
    oracle = Oracle(call)
    for tensor, (value, error) in oracle.fast().items():
        low, high = oracle.enclosure(tensor)
        held = ((value - error <= low) & (high <= value + error)) | ((value == low) & (value == high))
        assert held.all(), tensor


def one_by_one(call: AttentionCall, dtype: str) -> dict[str, np.ndarray]:
    """Scores, softmax and output with every elementary operation rounded to `dtype`, one sum term after the other."""
    kind = FORMATS[dtype].dtype
    q, k, v = (np.asarray(getattr(call, n)).astype(kind) for n in ("query", "key", "value"))
    out = np.zeros((*call.score_shape[:3], v.shape[-1]), dtype=kind)
    parameters = {n: a.astype(kind) for n, a in call.score.parameters().items()}
    for b, h, i in np.ndindex(call.score_shape[:3]):
        seen = np.flatnonzero(call.visible[b, h, i])
        if not seen.size:
            continue
        row = [_score(call.score, parameters, h, q[b, h, i], k[b, call.head_map[h], j], kind) for j in seen]
        bias = np.broadcast_to(call.bias, call.score_shape)[b, h, i, seen].astype(kind)
        s = np.array([kind.type(x * kind.type(call.scale_value)) for x in row], dtype=kind) + bias
        n = np.exp(s - s.max())
        p = n / n.sum(dtype=kind)
        out[b, h, i] = (p[:, None] * v[b, call.head_map[h], seen]).sum(axis=0, dtype=kind)
    return {"output": out.astype(float)}


def _score(family: Family, p: dict[str, np.ndarray], h: int, q: np.ndarray, k: np.ndarray, kind: Any) -> Any:
    if isinstance(family, Bilinear):
        return ((q[:, None] * p["metric"][h % len(p["metric"])]).sum(axis=0, dtype=kind) * k).sum(dtype=kind)
    if isinstance(family, Additive):
        wq, wk, b, v = (a[h % len(a)] for a in (p["query_map"], p["key_map"], p["offset"], p["vector"]))
        inner = (wq * q).sum(axis=1, dtype=kind) + b + (wk * k).sum(axis=1, dtype=kind)
        return (v * np.tanh(inner)).sum(dtype=kind)
    if isinstance(family, Cosine):
        lengths = [np.sqrt((x * x).sum(dtype=kind)) for x in (q, k)]
        q, k = (x if n == 0 else x / n for x, n in zip((q, k), lengths, strict=True))
    return (q * k).sum(dtype=kind)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("name", FAMILIES)
def test_a_kernel_that_rounds_every_operation_stays_within_its_bound(name: str, dtype: str) -> None:
    ledger = Ledger("everything-rounds", dtype, dtype, stores=("output",))
    worst = 0.0
    for seed in range(12):
        call = drawn(seed, name, dtype=dtype)
        judged = Oracle(call).judge("output", one_by_one(call, dtype)["output"], bounds(call, ledger)["output"])
        assert judged.inside, judged
        worst = max(worst, judged.worst)
    # The bound is no blank cheque either.
    assert worst > 0.01


@pytest.mark.parametrize("name", ["bilinear", "additive", "cosine"])
def test_a_kernel_of_another_family_is_outside_its_bound(name: str) -> None:
    call = drawn(2, name)
    bound = bounds(call, every_operation_stored("bfloat16"))["output"]
    wrong = evaluate(Float64Domain(), call.but(score=Dot()))["output"]
    assert not Oracle(call).judge("output", wrong, bound).inside


def test_an_overflowing_length_has_no_bound_and_says_so() -> None:
    call = make_call(
        np.full((1, 1, 1, 2), 300.0), np.ones((1, 1, 2, 2)), np.ones((1, 1, 2, 1)), dtype="float16", scale=1.0
    )
    cosine = call.but(score=Cosine())
    stored = Ledger("squares-stored", "float16", "float16", stores=("dot", "output"))
    assert np.isinf(bounds(cosine, stored)["output"]).all()
    assert np.isfinite(bounds(cosine, named_ledgers("float16")["math"])["output"]).all()


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize(
    "sizes", [(0, 2, 4, 5, 3, 2), (1, 2, 0, 5, 3, 2), (1, 2, 4, 0, 3, 2), (1, 2, 4, 5, 0, 2), (1, 2, 4, 5, 3, 0)]
)
def test_zero_sizes_give_empty_or_zero_tensors(name: str, sizes: tuple[int, ...]) -> None:
    b, h, q, k, d, w = sizes
    families: dict[str, Family] = {
        "dot": Dot(),
        "bilinear": Bilinear(np.ones((h, d, d))),
        "additive": Additive(np.ones((1, 2, d)), np.ones((1, 2, d)), np.ones((1, 2)), np.ones((1, 2))),
        "cosine": Cosine("zero"),
    }
    call = make_call(
        np.ones((b, h, q, d)),
        np.ones((b, h, k, d)),
        np.ones((b, h, k, w)),
        scale=1.0,
        grad_output=np.ones((b, h, q, w)),
    )
    family = call.but(score=families[name])
    oracle, bound = Oracle(family), bounds(family, named_ledgers("float32")["math"])
    for tensor, (value, _) in oracle.fast().items():
        assert value.shape == bound[tensor].shape == oracle.enclosure(tensor)[0].shape
        assert not tensor.startswith("grad") or 0 not in (k, w) or not value.any()
    assert oracle.fast()["grad_query"][0].shape == (b, h, q, d)


def test_a_direction_of_subnormal_numbers_has_no_bound_where_a_kernel_may_flush_them() -> None:
    tiny = 2.0**-130
    call = make_call(
        np.full((1, 1, 1, 2), tiny), np.ones((1, 1, 2, 2)), np.ones((1, 1, 2, 1)), dtype="bfloat16", scale=1.0
    )
    cosine = call.but(value=np.array([[[[1.0], [2.0]]]])).but(score=Cosine())
    bound = bounds(cosine, named_ledgers("bfloat16")["math"])["output"]
    assert np.isinf(bound).all() or (bound >= 0.5).all()
    low, high = Oracle(cosine).enclosure("output")
    assert (low <= 1.5).all()
    assert (high >= 1.5).all()


# cosine: policies, and the ±1 bound


def _cosine(query: list[list[float]], key: list[list[float]], family: Cosine) -> AttentionCall:
    q, k = np.array([[query]], dtype=float), np.array([[key]], dtype=float)
    return make_call(q, k, np.ones((1, 1, k.shape[2], 1)), dtype="float64", scale=1.0).but(score=family)


def _scores(call: AttentionCall, dom: Any = None) -> np.ndarray:
    dom = dom or Float64Domain()
    params, x = lift_call(dom, call)
    return params.score.pair(dom, x)[0][0, 0]


def test_cosine_scores_stay_within_one() -> None:
    rng = np.random.default_rng(0)
    with precision(113):
        for _ in range(20):
            size = 10.0 ** rng.uniform(-6, 6)
            q = (size * rng.standard_normal((3, 4))).tolist()
            found = _scores(_cosine(q, [*q, [1.0, 0.0, 0.0, 0.0]], Cosine()), BallDomain())
            assert all(abs(x) - 1 < 2.0**-100 for x in found.reshape(-1))
            assert all((found[i, i] - 1).contains(0) for i in range(3))


def test_a_query_of_length_zero_is_refused_by_default() -> None:
    with pytest.raises(FamilyError, match=r"query\[0, 0, 1\] has length zero.*zero_norm"):
        _cosine([[1.0, 0.0], [0.0, 0.0]], [[1.0, 1.0]], Cosine())
    with pytest.raises(FamilyError, match=r"key\[0, 0, 0\] has length zero"):
        _cosine([[1.0, 0.0]], [[0.0, 0.0]], Cosine())


def test_policy_zero_gives_score_zero_and_no_gradient() -> None:
    call = _cosine([[0.0, 0.0], [3.0, 4.0]], [[1.0, 0.0], [0.0, 2.0]], Cosine("zero"))
    assert _scores(call).tolist() == [[0.0, 0.0], [0.6, 0.8]]
    call = call.but(grad_output=np.ones((1, 1, 2, 1)), value=np.array([[[[1.0], [2.0]]]]))
    gradient = evaluate(Float64Domain(), call)["grad_query"][0, 0]
    assert gradient[0].tolist() == [0.0, 0.0]
    assert gradient[1].any()


def test_policy_clamp_divides_short_vectors_by_epsilon_in_both_passes() -> None:
    call = _cosine([[0.25, 0.0], [3.0, 4.0]], [[1.0, 0.0], [0.0, 2.0]], Cosine("clamp", 0.5))
    assert _scores(call).tolist() == [[0.5, 0.0], [0.6, 0.8]]
    params, x = lift_call(Float64Domain(), call)
    g = np.ones((1, 1, 2, 2))
    found = params.score.pair(Float64Domain(), x)[1](g)[0][0, 0]
    # Below the clamp the length is a constant: û = q / ε, so the gradient is Σ k̂ / ε.
    assert found[0].tolist() == [2.0, 2.0]
    bound = BoundDomain(named_ledgers("float64")["math"])
    near = _cosine([[0.5, 0.0]], [[1.0, 0.0]], Cosine("clamp", 0.5))
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
    call = _cosine([[1.0, 0.0]], [[1.0, 0.0]] + [[-1.0, 0.0]] * 127, Cosine())
    value = np.zeros((1, 1, 128, 1))
    value[0, 0, 0] = 1.0
    output = Oracle(call.but(value=value)).enclosure("output")
    assert output[0].item() <= float(exact.mid()) <= output[1].item()


# additive and bilinear facts


def test_an_additive_score_without_tanh_forgets_the_query() -> None:
    call = drawn(9, "additive", bias=False)
    assert isinstance(call.score, Additive)
    u = _scores(call)
    linear = (
        call.query @ np.swapaxes(call.score.query_map, -1, -2) @ call.score.vector[:, :, None]
        + np.swapaxes(
            call.key[:, [0, 0]] @ np.swapaxes(call.score.key_map, -1, -2) @ call.score.vector[:, :, None], -1, -2
        )
    )[0, 0]
    # Without the tanh all rows order the keys alike: their differences do not depend on the query.
    assert np.ptp(linear - linear[:, :1], axis=0).max() < 1e-12
    assert np.ptp(u - u[:, :1], axis=0).max() > 1e-2
    assert np.abs(u).max() <= np.abs(call.score.vector).sum(axis=-1).max()


def test_a_bilinear_score_associates_exactly() -> None:
    call = drawn(11, "bilinear")
    assert isinstance(call.score, Bilinear)
    dom = ExactDomain()
    params, x = lift_call(dom, call)
    left = params.score.pair(dom, x)[0]
    right = dom.mul("dot", x.query, np.swapaxes(dom.mul_t("dot", x.key, x.parameters["metric"]), -1, -2))
    assert (left == right).all()


# reductions


def integers(name: str, seed: int = 0) -> AttentionCall:
    call = drawn(seed, name, bias=False)
    rng = np.random.default_rng(seed)
    small = call.but(query=rng.integers(-3, 4, call.query.shape).astype(float))
    if isinstance(small.score, Bilinear):
        return small.but(score=Bilinear(rng.integers(-2, 3, (2, 3, 3)).astype(float)))
    return small


def test_a_bilinear_call_reduces_exactly_and_keeps_its_scale_as_a_number() -> None:
    call = integers("bilinear").but(scale=None)
    found = reduce_to_dot(call)
    assert found.exact
    assert found.rounded == 0
    assert found.call.scale == call.scale_value
    assert type(found.call) is AttentionCall
    ours = evaluate(ExactDomain(), call, with_lse=False)
    reduced = evaluate(ExactDomain(), found.call, with_lse=False)
    assert all((ours[n] == reduced[n]).all() for n in ("output", "grad_key", "grad_value"))


def test_an_inexact_reduction_is_refused_and_rounded_only_when_asked() -> None:
    call = drawn(1, "bilinear")
    with pytest.raises(FamilyError, match=r"bilinear: the reduced query\[0, 0, 0, 0\] = .* not exactly a value of flo"):
        reduce_to_dot(call)
    rounded = reduce_to_dot(call, rounding="nearest")
    assert not rounded.exact
    assert rounded.rounded > 0


def test_cosine_reduces_where_lengths_are_powers_of_two_and_is_refused_elsewhere() -> None:
    call = _cosine([[2.0, 0.0], [0.0, -4.0]], [[1.0, 1.0, 1.0, 1.0][:2], [0.0, 8.0]], Cosine())
    with pytest.raises(FamilyError, match=r"the length of key\[0, 0, 0\] is irrational"):
        reduce_to_dot(call)
    near = reduce_to_dot(call, rounding="nearest")
    assert not near.exact
    assert np.abs(near.call.key[0, 0, 0] - 0.5**0.5).max() < 1e-16
    exact = reduce_to_dot(_cosine([[1.0, 1.0, 1.0, 1.0]], [[0.0, 8.0, 0.0, 0.0]], Cosine()))
    assert exact.exact
    assert exact.call.query[0, 0, 0].tolist() == [0.5, 0.5, 0.5, 0.5]
    with pytest.raises(FamilyError, match="not exactly a value of float64"):
        reduce_to_dot(_cosine([[3.0, 4.0]], [[1.0, 0.0]], Cosine()))


def test_the_additive_family_is_never_handed_to_a_dot_product_kernel() -> None:
    for rounding in ("refuse", "nearest"):
        with pytest.raises(FamilyError, match="'additive' is no dot product"):
            reduce_to_dot(drawn(0, "additive"), rounding=rounding)


def test_dot_reduces_to_itself() -> None:
    call = drawn(0, "dot")
    found = reduce_to_dot(call)
    assert found.exact
    assert found.call.query is call.query
    with pytest.raises(ValueError, match="expected 'refuse' or 'nearest'"):
        reduce_to_dot(call, rounding="up")


# the contract of a family call


def test_parameters_are_checked_by_name() -> None:
    call = drawn(0, "dot").but(score=Dot())
    with pytest.raises(
        FamilyError, match=r"bilinear.metric has shape \[3, 3, 3\]: expected \[1, 3, 3\] or \[2, 3, 3\]"
    ):
        call.but(score=Bilinear(np.zeros((3, 3, 3))))
    with pytest.raises(FamilyError, match=r"bilinear.metric\[0, 1, 2\] = .*nan.*: expected a finite value of float32"):
        call.but(score=Bilinear(np.array([[[0, 0, 0], [0, 0, np.nan], [0, 0, 0]]], dtype=float)))
    with pytest.raises(FamilyError, match=r"additive.offset has shape \[1, 4\]"):
        call.but(score=Additive(np.zeros((1, 2, 3)), np.zeros((1, 2, 3)), np.zeros((1, 4)), np.zeros((1, 2))))


@pytest.mark.parametrize(
    "family", [Cosine("zero"), Additive(*(np.zeros(s) for s in ((1, 2, 3), (1, 2, 3), (1, 2), (1, 2))))]
)
def test_the_default_scale_belongs_to_dot_products(family: Family) -> None:
    call = drawn(0, "dot").but(score=Dot())
    with pytest.raises(FamilyError, match=r"scale = None for the \w+ family"):
        call.but(scale=None, score=family)


@pytest.mark.parametrize(("name", "value"), [("softcap", 5.0), ("sink", np.zeros(2))])
def test_modifiers_of_dot_products_are_refused(name: str, value: Any) -> None:
    call = drawn(0, "dot").but(score=Dot())
    with pytest.raises(FamilyError, match=f"{name} of a bilinear call: only dot products carry one"):
        call.but(**{name: value}).but(score=Bilinear(np.zeros((1, 3, 3))))


def test_a_domain_without_roots_says_so() -> None:
    with pytest.raises(NotImplementedError, match="the exact domain has no square root: no cosine scores"):
        evaluate(ExactDomain(), drawn(0, "cosine"), with_lse=False)


def test_the_spec_of_one_head_is_reached_through_its_reduction() -> None:
    """The same numbers through attnspec.pyspec.attention directly."""
    found = reduce_to_dot(integers("bilinear")).call
    dom = ExactDomain()
    key, value = (dom.lift(x[:, list(found.head_map)]) for x in (found.key, found.value))
    inputs = Inputs(dom.lift(found.query), key, value)
    params: Params[Any] = Params(found.scale_value, found.visible)
    assert (forward(dom, params, inputs) == evaluate(dom, found, with_lse=False)["output"]).all()
    assert found.grad_output is not None
    assert backward(dom, params, inputs, dom.lift(found.grad_output)).query.shape == found.query.shape
