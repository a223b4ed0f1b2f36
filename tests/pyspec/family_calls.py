"""Calls of every score family: drawn ones, ones of small integers, and cosine ones written out."""

from __future__ import annotations

from typing import Any

import numpy as np

from attnspec.pyspec import AttentionCall, make_call
from attnspec.pyspec.calls.formats import round_to
from attnspec.pyspec.calls.score import FAMILIES, Additive, Bilinear, Cosine, Dot, Family
from attnspec.pyspec.domains import Float64Domain
from attnspec.pyspec.evaluate import lift_call


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


def integers(name: str, seed: int = 0) -> AttentionCall:
    """A drawn call whose queries and metric are small integers, so that exact arithmetic stays exact."""
    call = drawn(seed, name, bias=False)
    rng = np.random.default_rng(seed)
    small = call.but(query=rng.integers(-3, 4, call.query.shape).astype(float))
    if isinstance(small.score, Bilinear):
        return small.but(score=Bilinear(rng.integers(-2, 3, (2, 3, 3)).astype(float)))
    return small


def cosine_call(query: list[list[float]], key: list[list[float]], family: Cosine) -> AttentionCall:
    """One head with these queries and keys, values of one."""
    q, k = np.array([[query]], dtype=float), np.array([[key]], dtype=float)
    return make_call(q, k, np.ones((1, 1, k.shape[2], 1)), dtype="float64", scale=1.0).but(score=family)


def scores(call: AttentionCall, dom: Any = None) -> np.ndarray:
    """Scores [Q, K] of the first head before scale and bias."""
    dom = dom or Float64Domain()
    params, x = lift_call(dom, call)
    return params.score.pair(dom, x)[0][0, 0]
