"""numpy-scores with one thing wrong each: scores, normaliser, dropout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from attnspec.certify.subjects.numpy_scores import Pullback, attention, score
from attnspec.pyspec import AttentionCall
from attnspec.pyspec.calls.score import Additive, Bilinear, Cosine, Dot, Family
from attnspec.pyspec.dropout import multiplier
from attnspec.strategies.derived import with_mask

Tensors = dict[str, np.ndarray]
Kernel = Callable[[AttentionCall], Tensors]


def right(call: AttentionCall, **parts: Callable[..., object]) -> Tensors:
    """The reference's tensors, with some of its parts replaced."""
    given = {n: getattr(call, n) for n in ("query", "key", "value")}
    return attention(call, given, **{"draw": drawn, **parts})  # type: ignore[arg-type]


def drawn(call: AttentionCall, *, salt: int = 0) -> np.ndarray:
    """The multiplier that this subject draws for itself."""
    assert call.own_dropout is not None
    keep = np.random.default_rng([call.own_dropout.seed, salt]).random(call.score_shape) >= call.own_dropout.probability
    return multiplier(keep, call.own_dropout.probability)


def scaled(change: Callable[[AttentionCall], float]) -> Kernel:
    """The scale replaced by another number."""
    return lambda call: right(call.but(scale=float(change(call))))


def model_width_scale(call: AttentionCall) -> float:
    a = call.axes
    return float((a.query_heads * a.key_width) ** -0.5) if call.scale is None else call.scale_value


def with_scores(change: Callable[[Family, int, np.ndarray, np.ndarray], tuple[np.ndarray, Pullback]]) -> Kernel:
    """The scores, and their pullback, replaced."""
    return lambda call: right(call, scores=change)


def without_norms(family: Family, head: int, q: np.ndarray, k: np.ndarray) -> tuple[np.ndarray, Pullback]:
    return score(Dot() if isinstance(family, Cosine) else family, head, q, k)


def query_norm_only(family: Family, head: int, q: np.ndarray, k: np.ndarray) -> tuple[np.ndarray, Pullback]:
    if not isinstance(family, Cosine):
        return score(family, head, q, k)
    length = np.linalg.norm(q, axis=-1, keepdims=True)
    return score(Dot(), head, q / np.where(length == 0, 1.0, length), k)


def radial_gradient(family: Family, head: int, q: np.ndarray, k: np.ndarray) -> tuple[np.ndarray, Pullback]:
    """The length treated as a constant in the backward pass."""
    u, _ = score(family, head, q, k)
    if not isinstance(family, Cosine):
        return score(family, head, q, k)
    lengths = [np.linalg.norm(x, axis=-1, keepdims=True) for x in (q, k)]
    a, b = (np.where(n == 0, 0.0, 1.0 / np.where(n == 0, 1.0, n)) for n in lengths)
    return u, lambda g: {"query": (g @ (k * b)) * a, "key": (g.T @ (q * a)) * b}


def additive_as_product(family: Family, head: int, q: np.ndarray, k: np.ndarray) -> tuple[np.ndarray, Pullback]:
    if not isinstance(family, Additive):
        return score(family, head, q, k)
    wq, wk = (a[head % len(a)] for a in (family.query_map, family.key_map))
    blank = {n: np.zeros(p.shape[1:]) for n, p in family.parameters().items()}
    return (q @ wq.T) @ (k @ wk.T).T, lambda g: {
        **blank,
        "query": g @ k @ wk.T @ wq,
        "key": g.T @ q @ wq.T @ wk,
    }


def without_offset(family: Family, head: int, q: np.ndarray, k: np.ndarray) -> tuple[np.ndarray, Pullback]:
    if isinstance(family, Additive):
        family = replace(family, offset=np.zeros_like(family.offset))
    return score(family, head, q, k)


def metric_transposed(family: Family, head: int, q: np.ndarray, k: np.ndarray) -> tuple[np.ndarray, Pullback]:
    if isinstance(family, Bilinear):
        family = Bilinear(np.swapaxes(family.metric, -1, -2))
    return score(family, head, q, k)


def metric_ignored(family: Family, head: int, q: np.ndarray, k: np.ndarray) -> tuple[np.ndarray, Pullback]:
    if not isinstance(family, Bilinear):
        return score(family, head, q, k)
    u, back = score(Dot(), head, q, k)
    return u, lambda g: {**back(g), "metric": q.T @ g @ k}


def dropout_first(call: AttentionCall) -> Tensors:
    """Keys removed before the softmax."""
    if call.multiplier is None:
        return right(call)
    return right(with_mask(call, call.visible & (call.multiplier > 0)).but(dropout=None))


def not_rescaled(call: AttentionCall) -> Tensors:
    if call.multiplier is None or call.dropout is None:
        return right(call)
    return right(call.but(dropout=replace(call.dropout, multiplier=(call.multiplier > 0).astype(float))))


def dropped_as_illegal(call: AttentionCall) -> Tensors:
    """The forward pass right; in the backward pass dropped keys count as hidden."""
    found = right(call)
    if call.multiplier is None or call.grad_output is None:
        return found
    other = dropout_first(call)
    return {n: other[n] if n.startswith("grad_") else t for n, t in found.items()}


def dropped_without_score_gradient(call: AttentionCall) -> Tensors:
    """The score gradient multiplied by the mask."""
    found = right(call)
    if call.multiplier is not None and "grad_bias" in found and found["grad_bias"].shape == call.score_shape:
        found["grad_bias"] = found["grad_bias"] * (call.multiplier > 0)
    return found


def fresh_mask(call: AttentionCall) -> Tensors:
    """The backward pass under a mask of its own."""
    found = right(call)
    if call.own_dropout is not None:
        other = right(call, draw=lambda c: drawn(c, salt=1))
    elif call.dropout is not None and call.dropout.training:
        p = call.dropout.probability
        keep = np.random.default_rng(7).random(call.score_shape) >= p
        other = right(call.but(dropout=replace(call.dropout, multiplier=multiplier(keep, p))))
    else:
        return found
    return {n: other[n] if n.startswith("grad_") else t for n, t in found.items()}


def weights_after(call: AttentionCall) -> Tensors:
    """Weights after dropout handed over whatever was asked."""
    if call.dropout is None or call.dropout.returned_weights == "none":
        return right(call)
    return right(call.but(dropout=replace(call.dropout, returned_weights="after_dropout")))


def weights_before(call: AttentionCall) -> Tensors:
    """Weights before dropout handed over whatever was asked."""
    if call.dropout is None or call.dropout.returned_weights == "none":
        return right(call)
    return right(call.but(dropout=replace(call.dropout, returned_weights="before_dropout")))


def keeps_with_p(call: AttentionCall) -> Tensors:
    """Keeps with the probability of dropping, and rescales by the declared rate."""

    def draw(c: AttentionCall) -> np.ndarray:
        own = c.own_dropout
        assert own is not None
        return multiplier(np.random.default_rng(own.seed).random(c.score_shape) < own.probability, own.probability)

    return right(call, draw=draw)


def slightly_off_rate(call: AttentionCall) -> Tensors:
    """Drops a fifth more often than declared."""

    def draw(c: AttentionCall) -> np.ndarray:
        own = c.own_dropout
        assert own is not None
        keep = np.random.default_rng(own.seed).random(c.score_shape) >= 1.2 * own.probability
        return multiplier(keep, own.probability)

    return right(call, draw=draw)


def own_not_rescaled(call: AttentionCall) -> Tensors:
    return right(call, draw=lambda c: (drawn(c) > 0).astype(float))


def seed_ignored(call: AttentionCall) -> Tensors:
    if call.own_dropout is not None:
        return right(call.but(own_dropout=replace(call.own_dropout, seed=0)))
    return right(call)


class _Counter:
    count = 0


def not_replayed(call: AttentionCall) -> Tensors:
    """Another mask each time, whatever the seed."""
    _Counter.count += 1
    if call.own_dropout is not None:
        return right(call, draw=lambda c, n=_Counter.count: drawn(c, salt=n))
    return right(call)


def on_in_evaluation(call: AttentionCall) -> Tensors:
    """The multiplier used although training is off."""
    if call.dropout is not None and not call.dropout.training:
        return right(call.but(dropout=replace(call.dropout, training=True)))
    return right(call)
