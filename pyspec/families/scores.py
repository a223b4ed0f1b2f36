"""Unscaled scores of each family, their derivative (JVP) and its transpose (backward), over any domain.

Matrices are lifted: query [B,H,Q,Dq], key [B,H,K,Dk] (heads already repeated), parameters with axes
[1, H or 1, rows, columns] as `lift_parameters` makes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attnspec.pyspec.domain import ArrayDomain, Domain
from attnspec.pyspec.families import ops
from attnspec.pyspec.families.kinds import Additive, Bilinear, Cosine, Family
from attnspec.pyspec.study.rows import exp_of

Matrices = Mapping[str, Any]


def lift_parameters(dom: Domain[Any], family: Family) -> dict[str, Any]:
    """The family's parameters in the domain; a vector becomes a matrix of one row."""
    return {n: dom.lift(a[None] if a.ndim == 3 else a[None, :, None]) for n, a in family.parameters().items()}


def scores(dom: Domain[Any], family: Family, parameters: Matrices, x: Matrices) -> Any:
    """u [B,H,Q,K]. x: query, key, and for cosine also query_kinds and key_kinds (`pair_inputs`)."""
    if isinstance(family, Bilinear):
        return dom.mul_t("dot", dom.mul("dot", x["query"], parameters["metric"]), x["key"])
    if isinstance(family, Cosine):
        q, _ = ops.direction(dom, x["query"], x["query_kinds"], family)
        k, _ = ops.direction(dom, x["key"], x["key_kinds"], family)
        return dom.mul_t("dot", q, k)
    if isinstance(family, Additive):
        return _weighed(dom, parameters["vector"], _hidden(dom, parameters, x))
    return dom.mul_t("dot", x["query"], x["key"])


def _hidden(dom: Domain[Any], parameters: Matrices, x: Matrices) -> Any:
    """tanh(W_q q_i + W_k k_j + b), [B,H,Q,K,Da]."""
    query_term = dom.mul_t("dot", x["query"], parameters["query_map"])
    key_term = dom.mul_t("dot", x["key"], parameters["key_map"])
    # The offset may be added to either term or to their sum: one more rounding of the same size.
    return ops.tanh(dom, ops.pair(dom, dom.add("dot", query_term, parameters["offset"]), key_term))


def _weighed(dom: Domain[Any], vector: Any, hidden: Any) -> Any:
    """Σ_a v_a h_ija."""
    return ops.narrow(dom.mul_t("dot", hidden, ops.widen(vector, -3)), -1)


def score_jvp(dom: Domain[Any], family: Family, parameters: Matrices, x: Matrices, dx: Matrices) -> Any:
    """Directional derivative of the scores along dx: query, key, and tangents of the parameters by name."""
    dq, dk = dx["query"], dx["key"]
    if isinstance(family, Bilinear):
        moved = dom.add("dot", dom.mul("dot", dq, parameters["metric"]), dom.mul("dot", x["query"], dx["metric"]))
        left = dom.mul_t("dot", moved, x["key"])
        return dom.add("dot", left, dom.mul_t("dot", dom.mul("dot", x["query"], parameters["metric"]), dk))
    if isinstance(family, Cosine):
        q, q_inverse = ops.direction(dom, x["query"], x["query_kinds"], family)
        k, k_inverse = ops.direction(dom, x["key"], x["key_kinds"], family)
        dq = ops.turn(dom, "dot", q, q_inverse, dq, x["query_kinds"])
        dk = ops.turn(dom, "dot", k, k_inverse, dk, x["key_kinds"])
        return dom.add("dot", dom.mul_t("dot", dq, k), dom.mul_t("dot", q, dk))
    if isinstance(family, Additive):
        hidden = _hidden(dom, parameters, x)
        query_term = dom.add(
            "dot",
            dom.add("dot", dom.mul_t("dot", dq, parameters["query_map"]), dx["offset"]),
            dom.mul_t("dot", x["query"], dx["query_map"]),
        )
        key_term = dom.add(
            "dot", dom.mul_t("dot", dk, parameters["key_map"]), dom.mul_t("dot", x["key"], dx["key_map"])
        )
        moved = dom.hadamard("dot", ops.tanh_slope(dom, hidden), ops.pair(dom, query_term, key_term))
        return dom.add("dot", _weighed(dom, parameters["vector"], moved), _weighed(dom, dx["vector"], hidden))
    return dom.add("dot", dom.mul_t("dot", dq, x["key"]), dom.mul_t("dot", x["query"], dk))


def scores_backward(dom: Domain[Any], family: Family, parameters: Matrices, x: Matrices, g: Any) -> dict[str, Any]:
    """Transpose of `score_jvp`: gradients of query, key (per query head) and of each parameter, from g [B,H,Q,K].

    Gradients of parameters are [1, H or 1, rows, columns], summed over the batch and, where one serves all heads,
    over the heads.
    """
    if isinstance(family, Bilinear):
        through = dom.mul("scaled_grad", g, x["key"])
        metric = parameters["metric"]
        return {
            "query": dom.mul_t("grad_query", through, metric),
            "key": dom.t_mul("grad_key", g, dom.mul("dot", x["query"], metric)),
            "metric": _shared(dom, metric, dom.t_mul("grad_query", x["query"], through)),
        }
    if isinstance(family, Cosine):
        q, q_inverse = ops.direction(dom, x["query"], x["query_kinds"], family)
        k, k_inverse = ops.direction(dom, x["key"], x["key_kinds"], family)
        gq, gk = dom.mul("scaled_grad", g, k), dom.t_mul("scaled_grad", g, q)
        return {
            "query": ops.turn(dom, "grad_query", q, q_inverse, gq, x["query_kinds"]),
            "key": ops.turn(dom, "grad_key", k, k_inverse, gk, x["key_kinds"]),
        }
    if isinstance(family, Additive):
        return _additive_backward(dom, parameters, x, g)
    return {"query": dom.mul("grad_query", g, x["key"]), "key": dom.t_mul("grad_key", g, x["query"])}


def sharpest_cosine_weight(dom: ArrayDomain, keys: int, scale: float = 1.0) -> Any:
    """The largest weight that cosine scores allow among `keys` keys: one at +1, the others at -1.

    1 / (1 + (keys - 1) exp(-2 scale)): about 0.055 for 128 keys and no scale, so bounded scores need one.
    """
    others = dom.number(float(keys - 1)) * exp_of(dom, dom.number(-2.0) * dom.number(scale))
    return dom.number(1.0) / (dom.number(1.0) + others)


def _additive_backward(dom: Domain[Any], parameters: Matrices, x: Matrices, g: Any) -> dict[str, Any]:
    hidden = _hidden(dom, parameters, x)
    wide = ops.widen(g, -1)
    spread = dom.hadamard("scaled_grad", wide, ops.widen(parameters["vector"], -3))
    inner = dom.hadamard("scaled_grad", spread, ops.tanh_slope(dom, hidden))
    queries, keys, width = ops.shape_of(inner)[-3:]
    # Sums over keys, and over queries, as products with a row of ones: the same rule in any order.
    per_query = ops.narrow(dom.mul("scaled_grad", ops.ones(dom, (1, keys)), inner), -2)
    lead = ops.shape_of(inner)[:-3]
    flat = ops.reshape(inner, (*lead, queries, keys * width))
    per_key = ops.reshape(dom.mul("scaled_grad", ops.ones(dom, (1, queries)), flat), (*lead, keys, width))
    by_pair = dom.mul(
        "grad_query", ops.reshape(g, (*lead, 1, queries * keys)), ops.reshape(hidden, (*lead, queries * keys, width))
    )
    return {
        "query": dom.mul("grad_query", per_query, parameters["query_map"]),
        "key": dom.mul("grad_query", per_key, parameters["key_map"]),
        "query_map": _shared(dom, parameters["query_map"], dom.t_mul("grad_query", per_query, x["query"])),
        "key_map": _shared(dom, parameters["key_map"], dom.t_mul("grad_query", per_key, x["key"])),
        "offset": _shared(dom, parameters["offset"], dom.mul("grad_query", ops.ones(dom, (1, queries)), per_query)),
        "vector": _shared(dom, parameters["vector"], by_pair),
    }


def _shared(dom: Domain[Any], parameter: Any, gradient: Any) -> Any:
    """Summed over the batch, and over the heads where the parameter has only one."""
    gradient = dom.sum_axis("grad_bias", gradient, 0)
    if ops.shape_of(parameter)[1] == 1 and ops.shape_of(gradient)[1] != 1:
        gradient = dom.sum_axis("grad_bias", gradient, 1)
    return gradient
