"""Attention with any score family, written plainly in numpy: scores and their pullback by hand, one head at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from attnspec.certify.subjects.numpy_run import bias_gradient
from attnspec.pyspec import AttentionCall
from attnspec.pyspec.calls.score import Additive, Bilinear, Cosine, Family

Gradients = dict[str, np.ndarray]
Pullback = Callable[[np.ndarray], Gradients]
Score = Callable[[Family, int, np.ndarray, np.ndarray], tuple[np.ndarray, Pullback]]


def score(family: Family, head: int, query: np.ndarray, key: np.ndarray) -> tuple[np.ndarray, Pullback]:
    """Unscaled scores [Q,K] of one head, and the map from their gradient to those of query, key and parameters."""
    if isinstance(family, Bilinear):
        w = family.metric[head % len(family.metric)]
        return query @ w @ key.T, lambda g: {
            "query": g @ key @ w.T,
            "key": g.T @ query @ w,
            "metric": query.T @ g @ key,
        }
    if isinstance(family, Cosine):
        q, back_q = _direction(query, family)
        k, back_k = _direction(key, family)
        return q @ k.T, lambda g: {"query": back_q(g @ k), "key": back_k(g.T @ q)}
    if isinstance(family, Additive):
        return _additive(family, head, query, key)
    return query @ key.T, lambda g: {"query": g @ key, "key": g.T @ query}


def _direction(x: np.ndarray, family: Cosine) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    length = np.sqrt((x * x).sum(axis=-1, keepdims=True))
    short = length < family.epsilon
    length = np.where(short, family.epsilon, length)
    inverse = np.where(length == 0.0, 0.0, 1.0 / np.where(length == 0.0, 1.0, length))
    unit = x * inverse

    def back(g: np.ndarray) -> np.ndarray:
        along = np.where(short, 0.0, (unit * g).sum(axis=-1, keepdims=True))
        return (g - unit * along) * inverse

    return unit, back


def _additive(family: Additive, head: int, query: np.ndarray, key: np.ndarray) -> tuple[np.ndarray, Pullback]:
    wq, wk, b, v = (a[head % len(a)] for a in (family.query_map, family.key_map, family.offset, family.vector))
    hidden = np.tanh((query @ wq.T)[:, None, :] + (key @ wk.T)[None, :, :] + b)

    def back(g: np.ndarray) -> Gradients:
        inner = g[:, :, None] * v * (1.0 - hidden * hidden)
        per_query, per_key = inner.sum(axis=1), inner.sum(axis=0)
        return {
            "query": per_query @ wq,
            "key": per_key @ wk,
            "query_map": per_query.T @ query,
            "key_map": per_key.T @ key,
            "offset": per_query.sum(axis=0),
            "vector": (g[:, :, None] * hidden).sum(axis=(0, 1)),
        }

    return hidden @ v, back


def softmax_rows(visible: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Weights of one head: softmax over visible keys, zero rows where there is none."""
    top = np.max(scores, axis=-1, keepdims=True, initial=-np.inf, where=visible)
    n = np.where(visible, np.exp(np.where(visible, scores - np.where(top == -np.inf, 0.0, top), -np.inf)), 0.0)
    total = n.sum(axis=-1, keepdims=True)
    return n / np.where(total == 0.0, 1.0, total)


def attention(
    call: AttentionCall,
    given: Mapping[str, np.ndarray],
    *,
    draw: Callable[[AttentionCall], np.ndarray] | None = None,
    scores: Score = score,
    normalise: Callable[[np.ndarray, np.ndarray], np.ndarray] = softmax_rows,
) -> dict[str, np.ndarray]:
    """Every tensor of the call in float64. `draw` gives the multiplier of a call whose dropout is the subject's own."""
    family = call.score
    keep = call.multiplier
    if call.own_dropout is not None and call.own_dropout.probability > 0.0 and draw is not None:
        keep = draw(call)
    keep = np.ones(call.score_shape) if keep is None else keep
    bias = np.zeros(call.score_shape) if call.bias is None else np.broadcast_to(call.bias, call.score_shape)
    a, parameters = call.axes, family.parameters()
    out = np.zeros((a.batch, a.query_heads, a.queries, a.value_width))
    lse = np.full(out.shape[:3], -np.inf)
    weights = np.zeros(call.score_shape)
    grads = {n: np.zeros(given[n].shape) for n in ("query", "key", "value")}
    grads |= {n: np.zeros(p.shape) for n, p in parameters.items()}
    grad_scores = np.zeros(call.score_shape)
    for b, h in np.ndindex(a.batch, a.query_heads):
        g = call.head_map[h]
        q, k, v = given["query"][b, h], given["key"][b, g], given["value"][b, g]
        seen = call.visible[b, h]
        u, back = scores(family, h, q, k)
        s = call.scale_value * u + bias[b, h]
        p = weights[b, h] = normalise(seen, s)
        z = keep[b, h]
        out[b, h] = (p * z) @ v
        lse[b, h] = _lse(seen, s)
        if call.grad_output is None:
            continue
        grad_out = call.grad_output[b, h]
        through = z * (grad_out @ v.T)
        gs = p * (through - (p * through).sum(axis=-1, keepdims=True))
        grad_scores[b, h] = gs
        grads["value"][b, g] += (p * z).T @ grad_out
        for name, gradient in back(call.scale_value * gs).items():
            where = {"query": (b, h), "key": (b, g)}.get(name)
            if where is None:
                grads[name][h % len(grads[name])] += gradient
            else:
                grads[name][where] += gradient
    result = {"output": out, "lse": lse}
    if call.dropout is not None and call.dropout.returned_weights != "none":
        result["weights"] = weights * keep if call.dropout.returned_weights == "after_dropout" else weights
    if call.grad_output is not None:
        result |= {f"grad_{n}": x for n, x in grads.items()}
        if call.bias is not None:
            result["grad_bias"] = bias_gradient(call, grad_scores)
    return result


def _lse(visible: np.ndarray, scores: np.ndarray) -> np.ndarray:
    top = np.max(scores, axis=-1, keepdims=True, initial=-np.inf, where=visible)
    finite = np.where(top == -np.inf, 0.0, top)
    total = np.where(visible, np.exp(np.where(visible, scores - finite, -np.inf)), 0.0).sum(axis=-1)
    return np.where(total == 0.0, -np.inf, finite[:, 0] + np.log(np.where(total == 0.0, 1.0, total)))
