"""What each stage may be: exact values by stage, and the error that a ledger allows a kernel there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from attnspec.pyspec.calls.call import AttentionCall
from attnspec.pyspec.domains.recording import recording
from attnspec.pyspec.evaluate import evaluate
from attnspec.pyspec.oracle.bound import BoundDomain
from attnspec.pyspec.oracle.ledger import NUMPY_FLOAT64, Ledger
from attnspec.pyspec.oracle.trace import BEFORE_MASK, STAGES
from attnspec.pyspec.sink import extended

# Stages that have bounds; row maxima, exponentials and denominators depend on how a kernel tiles a row.
BOUNDED = (
    "dot", "scaled", "capped", "biased", "weights", "consumed", "output", "lse",
    "consumed_grad", "weights_grad", "scores_grad", "capped_grad", "scaled_grad",
    "grad_query", "grad_key", "grad_value", "grad_bias", "grad_sink", "grad_slopes",
)  # fmt: skip


@dataclass(frozen=True)
class Leaving:
    """An entry outside its allowed interval: stage, index, what was observed, and the interval."""

    stage: str
    index: tuple[int, ...]
    observed: float
    exact: float
    lower: float
    upper: float


def stage_bounds(call: AttentionCall, ledger: Ledger = NUMPY_FLOAT64) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """(float64 value, allowed error) of each stage of BOUNDED under the ledger, in the shapes of pyspec.oracle.trace.

    With a sink, score stages have its column last. The value itself is within the error under NUMPY_FLOAT64.
    """
    dom, found = recording(BoundDomain(ledger))
    tensors = evaluate(dom, call)
    found |= {name: tensor for name, tensor in tensors.items() if name not in found}
    return {n: dom.lower(found[n]) for n in STAGES if n in found}


def first_leaving(call: AttentionCall, ledger: Ledger, seen: Mapping[str, np.ndarray]) -> Leaving | None:
    """The first stage, in the order of computation, with an entry outside what the ledger allows; or None.

    seen: the subject's stages by name, float64, those it has; the worst entry of the first stage that leaves is
    given. Scores that hidden keys would have are not judged.
    """
    exact, allowed = stage_bounds(call), stage_bounds(call, ledger)
    visible = extended(call).visible
    for stage, (value, own) in exact.items():
        if stage not in seen:
            continue
        found = np.asarray(seen[stage], dtype=np.float64)
        if found.shape != value.shape:
            raise ValueError(f"stage {stage} has shape {list(found.shape)}: expected {list(value.shape)}")
        bound = allowed[stage][1]
        with np.errstate(all="ignore"):
            distance = np.where(found == value, 0.0, np.abs(found - value))
            distance = np.where(np.isnan(distance), np.inf, distance)
            outside = ~np.isinf(bound) & (distance - own > bound)
            if stage in BEFORE_MASK:
                outside &= visible
            if not outside.any():
                continue
            worst = np.where(outside, distance / np.where(bound == 0.0, np.finfo(np.float64).tiny, bound), -1.0)
        at = tuple(int(n) for n in np.unravel_index(int(np.argmax(worst)), worst.shape))
        reach = float(bound[at] + own[at])
        return Leaving(
            stage, at, float(found[at]), float(value[at]), float(value[at]) - reach, float(value[at]) + reach
        )
    return None
