"""The score families: unscaled scores of queries and keys, their derivative (JVP), and its transpose.

dot          u = q · k                      (attnspec.pyspec.attention.DotScore)
bilinear     u = q W kᵀ
additive     u = vᵀ tanh(W_q q + W_k k + b)
cosine       u = q · k / (|q| |k|)

Matrices are those of a domain: query [B,H,Q,Dq], key [B,H,K,Dk] (heads already repeated), parameters with axes
[1, H or 1, rows, columns] as `lift_parameters` makes them, a vector being a matrix of one row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from attnspec.pyspec.attention import DOT, Inputs, Pullback, Score
from attnspec.pyspec.calls.call import AttentionCall
from attnspec.pyspec.calls.score import Additive, Bilinear, Cosine
from attnspec.pyspec.domain import Domain
from attnspec.pyspec.lengths import Lengths, lengths_of

M = TypeVar("M")


def score_of(call: AttentionCall) -> Score:
    """The way in which the call scores its queries and keys."""
    family = call.score
    if isinstance(family, Bilinear):
        return BilinearScore()
    if isinstance(family, Additive):
        return AdditiveScore()
    if isinstance(family, Cosine):
        key = call.key[:, list(call.head_map)]
        return CosineScore(lengths_of(call.query, family.epsilon), lengths_of(key, family.epsilon))
    return DOT


def lift_parameters(dom: Domain[M], parameters: Mapping[str, np.ndarray]) -> dict[str, M]:
    """Parameters [Hq or 1, ...], or their tangents, in the domain; a vector becomes a matrix of one row."""
    return {n: dom.lift(a[None] if a.ndim == 3 else a[None, :, None]) for n, a in parameters.items()}


class BilinearScore:
    """q W kᵀ, with the parameter `metric` W."""

    def pair(self, dom: Domain[M], x: Inputs[M]) -> tuple[M, Pullback[M]]:
        """(Q W) Kᵀ, and the gradients (G K) Wᵀ, Gᵀ (Q W) and Qᵀ (G K)."""
        metric = x.parameters["metric"]
        moved = dom.mul("dot", x.query, metric)

        def pullback(g: M) -> tuple[M, M, Mapping[str, M]]:
            through = dom.mul("scaled_grad", g, x.key)
            grad_metric = _shared(dom, metric, dom.t_mul("grad_query", x.query, through))
            return dom.mul_t("grad_query", through, metric), dom.t_mul("grad_key", g, moved), {"metric": grad_metric}

        return dom.mul_t("dot", moved, x.key), pullback

    def jvp(self, dom: Domain[M], x: Inputs[M], dx: Inputs[M]) -> M:
        """(dQ W + Q dW) Kᵀ + Q W dKᵀ."""
        metric = x.parameters["metric"]
        moved = dom.add("dot", dom.mul("dot", dx.query, metric), dom.mul("dot", x.query, dx.parameters["metric"]))
        left = dom.mul_t("dot", moved, x.key)
        return dom.add("dot", left, dom.mul_t("dot", dom.mul("dot", x.query, metric), dx.key))


@dataclass(frozen=True)
class CosineScore:
    """The product of directions, with the lengths of queries and keys classified beforehand."""

    query: Lengths
    key: Lengths

    def pair(self, dom: Domain[M], x: Inputs[M]) -> tuple[M, Pullback[M]]:
        """Q̂ K̂ᵀ of the unit rows, and the gradients of products taken back through the division by the lengths."""
        q, k = dom.unit_rows(x.query, self.query), dom.unit_rows(x.key, self.key)

        def pullback(g: M) -> tuple[M, M, Mapping[str, M]]:
            grad_query, grad_key = dom.mul("scaled_grad", g, k[0]), dom.t_mul("scaled_grad", g, q[0])
            return (
                dom.unit_rows_grad("grad_query", q, grad_query, self.query),
                dom.unit_rows_grad("grad_key", k, grad_key, self.key),
                {},
            )

        return dom.mul_t("dot", q[0], k[0]), pullback

    def jvp(self, dom: Domain[M], x: Inputs[M], dx: Inputs[M]) -> M:
        """dQ̂ K̂ᵀ + Q̂ dK̂ᵀ."""
        q, k = dom.unit_rows(x.query, self.query), dom.unit_rows(x.key, self.key)
        dq = dom.unit_rows_grad("dot", q, dx.query, self.query)
        dk = dom.unit_rows_grad("dot", k, dx.key, self.key)
        return dom.add("dot", dom.mul_t("dot", dq, k[0]), dom.mul_t("dot", q[0], dk))


class AdditiveScore:
    """vᵀ tanh(W_q q + W_k k + b), with the parameters `query_map` W_q, `key_map` W_k, `offset` b and `vector` v."""

    def pair(self, dom: Domain[M], x: Inputs[M]) -> tuple[M, Pullback[M]]:
        """Σ_a v_a h_ija, and the gradients through the slope 1 - h² of the hidden layer h."""
        hidden = _hidden(dom, x)
        return _weighed(dom, x.parameters["vector"], hidden), lambda g: _additive_pullback(dom, x, hidden, g)

    def jvp(self, dom: Domain[M], x: Inputs[M], dx: Inputs[M]) -> M:
        """Σ_a v_a (1 - h²) dh + Σ_a dv_a h, with dh the tangent of the argument of tanh."""
        p, dp, hidden = x.parameters, dx.parameters, _hidden(dom, x)
        query_term = dom.add("dot", dom.mul_t("dot", dx.query, p["query_map"]), dp["offset"])
        query_term = dom.add("dot", query_term, dom.mul_t("dot", x.query, dp["query_map"]))
        key_term = dom.add(
            "dot", dom.mul_t("dot", dx.key, p["key_map"]), dom.mul_t("dot", x.key, dp["key_map"])
        )  # fmt: skip
        moved = dom.hadamard("dot", dom.tanh_slope("scaled_grad", hidden), _pairs(dom, query_term, key_term))
        return dom.add("dot", _weighed(dom, p["vector"], moved), _weighed(dom, dp["vector"], hidden))


def _hidden(dom: Domain[M], x: Inputs[M]) -> M:
    """tanh(W_q q_i + W_k k_j + b), [B,H,Q,K,Da]."""
    query_term = dom.mul_t("dot", x.query, x.parameters["query_map"])
    key_term = dom.mul_t("dot", x.key, x.parameters["key_map"])
    # The offset may be added to either term or to their sum: one more rounding of the same size.
    return dom.tanh_each("dot", _pairs(dom, dom.add("dot", query_term, x.parameters["offset"]), key_term))


def _pairs(dom: Domain[M], query_term: M, key_term: M) -> M:
    """Sum of every query's and every key's term: [.., Q, A] and [.., K, A] to [.., Q, K, A]."""
    return dom.add("dot", _widened(dom, query_term, -1), _widened(dom, key_term, -2))


def _widened(dom: Domain[M], a: M, axis: int) -> M:
    """One more axis of length one, in front of that axis (counted from the end), or behind the last for 0."""
    shape = dom.shape(a)
    at = len(shape) + axis
    return dom.reshape(a, (*shape[:at], 1, *shape[at:]))


def _weighed(dom: Domain[M], vector: M, hidden: M) -> M:
    """Σ_a v_a h_ija."""
    column = dom.mul_t("dot", hidden, _widened(dom, vector, -2))
    return dom.reshape(column, dom.shape(column)[:-1])


def _additive_pullback(dom: Domain[M], x: Inputs[M], hidden: M, g: M) -> tuple[M, M, Mapping[str, M]]:
    p = x.parameters
    spread = dom.hadamard("scaled_grad", _widened(dom, g, 0), _widened(dom, p["vector"], -2))
    inner = dom.hadamard("scaled_grad", spread, dom.tanh_slope("scaled_grad", hidden))
    *lead, queries, keys, width = dom.shape(inner)

    def summed(stage: str, rows: M, count: int) -> M:
        # Sums over keys and over queries, as products with a row of ones: the same rule in any order.
        return dom.mul(stage, dom.lift(np.ones((1, count))), rows)

    per_query = dom.reshape(summed("scaled_grad", inner, keys), (*lead, queries, width))
    flat = dom.reshape(inner, (*lead, queries, keys * width))
    per_key = dom.reshape(summed("scaled_grad", flat, queries), (*lead, keys, width))
    by_pair = dom.mul(
        "grad_query",
        dom.reshape(g, (*lead, 1, queries * keys)),
        dom.reshape(hidden, (*lead, queries * keys, width)),
    )
    whole = {
        "query_map": dom.t_mul("grad_query", per_query, x.query),
        "key_map": dom.t_mul("grad_query", per_key, x.key),
        "offset": summed("grad_query", per_query, queries),
        "vector": by_pair,
    }
    return (
        dom.mul("grad_query", per_query, p["query_map"]),
        dom.mul("grad_query", per_key, p["key_map"]),
        {name: _shared(dom, p[name], gradient) for name, gradient in whole.items()},
    )


def _shared(dom: Domain[M], parameter: M, gradient: M) -> M:
    """A parameter's gradient, summed over the batch, and over the heads where one parameter serves all of them."""
    gradient = dom.sum_axis("grad_bias", gradient, 0)
    if dom.shape(parameter)[1] == 1 and dom.shape(gradient)[1] != 1:
        gradient = dom.sum_axis("grad_bias", gradient, 1)
    return gradient
