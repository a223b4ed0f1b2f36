"""Which mistake fits: a refuted output held against the outputs of named wrong models.

The refutation itself stands on the derived bound. The name is a diagnosis: the wrong model's output, computed in
float64, lies everywhere within the largest error that the ledger allows anywhere in the tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from attnspec.certify.properties.model import Outcome
from attnspec.pyspec import AttentionCall
from attnspec.pyspec.domains import Float64Domain
from attnspec.pyspec.softmax import softmax

Rows = Callable[[np.ndarray, np.ndarray], np.ndarray]


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


def without_modifiers(call: AttentionCall) -> AttentionCall:
    """The call without softcap and sink, of which the wrong models here know nothing."""
    return call if call.softcap is None and call.sink is None else call.but(softcap=None, sink=None)


def dot_scores(call: AttentionCall) -> np.ndarray:
    """Q Kᵀ in float64, heads repeated."""
    return call.query @ np.swapaxes(call.key[:, list(call.head_map)], -1, -2)


def explained(
    outcome: Outcome,
    observed: Mapping[str, np.ndarray],
    bounds: Mapping[str, np.ndarray],
    mistakes: Mapping[str, Mapping[str, np.ndarray]],
) -> Outcome:
    """The outcome, its complaint led by the mistakes that fit every tensor they speak of.

    mistakes: by name, the tensors (float64) that the wrong model would return.
    """
    if not outcome.refuted or outcome.broken is not None or outcome.worst is None:
        return outcome
    fitting = [name for name, wrong in mistakes.items() if _fits(observed, bounds, wrong)]
    if not fitting:
        return outcome
    j = outcome.worst
    at = "" if j.index is None else str(list(j.index))
    return Outcome(
        judgements=outcome.judgements,
        broken=(
            f"{' or '.join(fitting)}: {j.tensor}{at} = {j.observed!r}, exact {j.exact[0]!r} to {j.exact[1]!r}, "
            f"allowed error {j.bound!r}"
        ),
        kernel=outcome.kernel,
    )


def _fits(
    observed: Mapping[str, np.ndarray], bounds: Mapping[str, np.ndarray], wrong: Mapping[str, np.ndarray]
) -> bool:
    names = [n for n in wrong if n in observed and observed[n].shape == wrong[n].shape]
    if not names:
        return False
    with np.errstate(all="ignore"):
        return all(bool((np.abs(observed[n] - wrong[n]) <= _largest(bounds[n])).all()) for n in names)


def _largest(bound: np.ndarray) -> float:
    return float(np.max(bound, initial=0.0, where=np.isfinite(bound)))
