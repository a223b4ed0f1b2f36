"""ALiBi: a penalty on each score, the distance between query and key times a slope that belongs to the query head.

It joins the scores together with the bias, after scale and softcap. Distances are those of sequences that end
together, |i + K - Q - j|, as in decoding over cached keys. The slope is an input: it has a tangent and a gradient.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from attnspec.pyspec.domain import Domain

LEAN_MODULES = ("AttnSpec.Alibi",)

M = TypeVar("M")


def distances(queries: int, keys: int) -> np.ndarray:
    """How far key j is from query i: |i + K - Q - j|, as float64 [Q,K]. Lean: AttnSpec.Alibi.distance."""
    i, j = np.arange(queries)[:, None], np.arange(keys)[None, :]
    return np.abs(i + (keys - queries) - j).astype(np.float64)


def reach(away: np.ndarray) -> np.ndarray:
    """The largest number that a kernel may put in place of each distance [Q,K].

    Kernels count causal rows from the first key (j) or the last (j - K + 1) instead of from the query: the scores of a
    row then all differ by one number, which softmax does not see. Lean: AttnProofs.alibi_may_count_from_the_first_key.
    """
    keys = away.shape[1]
    j = np.arange(keys, dtype=np.float64)
    return np.maximum(away, np.maximum(j, keys - 1 - j))


def slope_bias(dom: Domain[M], slopes: M, away: np.ndarray) -> M:
    """-m · distance [1,Hq,Q,K], to be added to the scores, for slopes [1,Hq,1,1] and distances [Q,K].

    Linear in the slopes, so of their tangent it makes the tangent of the scores. Lean: AttnSpec.Alibi.slopeBias.
    """
    return dom.along("alibi", slopes, 0.0 - away, reach(away))


def slope_gradient(dom: Domain[M], scores_grad: M, away: np.ndarray, batch: int) -> M:
    """The slopes' gradient [1,Hq,1,1] from that of the scores [B,Hq,Q,K] (zero where hidden) and the distances [Q,K].

    Minus the sum of distance times score gradient over batch, queries and keys. Lean: AttnSpec.Alibi.slopeGrad.
    """
    total = dom.along("alibi_grad", scores_grad, 0.0 - away, reach(away), summed=(batch, *away.shape))
    for axis in (3, 2, 0):
        total = dom.sum_axis("alibi_grad", total, axis)
    return dom.settle("grad_slopes", total)
