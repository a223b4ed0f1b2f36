"""Which mistake fits: a refuted result held against the results of named wrong models.

The refutation itself stands on the derived bound. The name is a diagnosis: the wrong model's tensors, computed in
float64, lie everywhere within the largest error that is allowed anywhere in the tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from attnspec.pyspec import AttentionCall
from attnspec.pyspec.domains import Float64Domain
from attnspec.pyspec.softmax import softmax

Tensors = Mapping[str, np.ndarray]
Rows = Callable[[np.ndarray, np.ndarray], np.ndarray]


def fitting(mistakes: Mapping[str, Tensors], observed: Tensors, allowed: Tensors) -> list[str]:
    """Names of the mistakes whose tensors, those that the subject returned, all fit."""
    return [name for name, wrong in mistakes.items() if _fits(observed, allowed, wrong)]


def _fits(observed: Tensors, allowed: Tensors, wrong: Tensors) -> bool:
    names = [n for n in wrong if n in observed and observed[n].shape == wrong[n].shape]
    with np.errstate(all="ignore"):
        return bool(names) and all(bool((np.abs(observed[n] - wrong[n]) <= _largest(allowed[n])).all()) for n in names)


def _largest(bound: np.ndarray) -> float:
    return float(np.max(bound, initial=0.0, where=np.isfinite(bound)))


def softmax_weights(visible: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Softmax over visible keys in float64."""
    return softmax(Float64Domain(), visible, scores)


def output_of(
    call: AttentionCall,
    unscaled: np.ndarray,
    *,
    scale: float | None = None,
    weights: Rows = softmax_weights,
    consumed: Callable[[np.ndarray], np.ndarray] | None = None,
) -> np.ndarray:
    """The output [B,Hq,Q,Dv] in float64 from unscaled scores, another row map, or another use of the weights."""
    with np.errstate(all="ignore"):
        s = (call.scale_value if scale is None else scale) * unscaled
        s = s if call.bias is None else s + call.bias
        p = weights(call.visible, s)
        z = call.multiplier
        c = consumed(p) if consumed is not None else (p if z is None else p * z)
        return c @ call.value[:, list(call.head_map)]


def dot_scores(call: AttentionCall) -> np.ndarray:
    """Q Kᵀ in float64, heads repeated."""
    return call.query @ np.swapaxes(call.key[:, list(call.head_map)], -1, -2)
