"""Bounds of score families hold kernels that round every operation, and no other family's kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attnspec.pyspec import AttentionCall, Ledger, Oracle, bounds, make_call, named_ledgers
from attnspec.pyspec.calls.formats import FORMATS
from attnspec.pyspec.calls.score import FAMILIES, Additive, Bilinear, Cosine, Dot, Family
from attnspec.pyspec.domains import Float64Domain
from attnspec.pyspec.evaluate import evaluate
from attnspec.pyspec.oracle.ledger import every_operation_stored
from tests.pyspec.family_calls import drawn


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
