"""One row of scores and its log-partition A(s) = log Σ exp s: all of softmax's geometry follows from A.

∇A = p, ∇²A = J = diag p - p pᵀ. Functions work on rows of numbers of any ArrayDomain, one list entry a legal key;
illegal keys are left out of the row, never set to a number. Empty rows and scores that are not finite are refused
before anything is computed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from attnspec.pyspec.arrays import ArrayDomain
from attnspec.pyspec.domains.float64 import Float64Domain


class RowError(ValueError):
    """A row that has no softmax; the message names the coordinate, the value and the mend."""


def check_row(scores: Sequence[Any], where: tuple[int, ...] = ()) -> None:
    """Refuse an empty row and a score that is NaN or infinite. `where` are leading coordinates for the message."""
    at = "".join(f"{i}, " for i in where)
    if len(scores) == 0:
        row = f"scores[{at.rstrip(', ')}]" if where else "scores"
        raise RowError(f"{row} is empty: softmax needs a legal key; apply an empty-row policy first")
    for j, s in enumerate(scores):
        if not _finite(s):
            raise RowError(
                f"scores[{at}{j}] = {s}: a legal score is finite; -inf marks a key as illegal only in an encoding, "
                "so leave the key out of the row"
            )


def _finite(s: Any) -> bool:
    if isinstance(s, float | int | np.floating | np.integer):
        return math.isfinite(s)
    if isinstance(s, Fraction):
        return True
    test = getattr(s, "is_finite", None)
    if test is None:
        return True
    found = test() if callable(test) else test
    # A symbol's finiteness may be unknown: only a known infinity is refused.
    return found is not False


def check_rows(visible: np.ndarray, scores: np.ndarray) -> None:
    """`check_row` for every row of [.., K] under its visibility, hidden entries being whatever they are."""
    for row in np.ndindex(scores.shape[:-1]):
        seen = visible[row]
        if not seen.any():
            check_row([], row)
        bad = np.flatnonzero(seen & ~np.isfinite(scores[row]))
        if bad.size:
            j = int(bad[0])
            raise RowError(
                f"scores[{', '.join(map(str, (*row, j)))}] = {scores[row][j]}: a legal score is finite; "
                "-inf marks a key as illegal only in an encoding, so clear its visibility instead"
            )


def exp_of(dom: ArrayDomain, x: Any) -> Any:
    """exp of one number; in float64 it may overflow to inf, which is observable, not an error."""
    if isinstance(dom, Float64Domain):
        with np.errstate(over="ignore"):
            return float(np.exp(x))
    return dom.exp(x)


def log_of(dom: ArrayDomain, x: Any) -> Any:
    """log of one positive number."""
    return math.log(x) if isinstance(dom, Float64Domain) else dom.log(x)


def log_partition(dom: ArrayDomain, scores: Sequence[Any]) -> Any:
    """A(s) = log Σ exp s_j. Only where the domain has a logarithm."""
    row = _row(scores)
    visible = np.ones(row.shape, dtype=bool)
    return dom.lse(visible, row)[0, 0]


def probabilities(dom: ArrayDomain, scores: Sequence[Any]) -> np.ndarray:
    """p = ∇A(s): the softmax of the row. Lean: AttnSpec.softmax."""
    row = _row(scores)
    return dom.softmax(np.ones(row.shape, dtype=bool), row)[0]


def _row(scores: Sequence[Any]) -> np.ndarray:
    check_row(scores)
    row = np.array(list(scores), dtype=np.float64 if isinstance(scores[0], float) else object)
    return row[None, :]


def jacobian(p: np.ndarray) -> np.ndarray:
    """J = diag p - p pᵀ, the derivative of softmax and the Hessian of A.

    Symmetric, positive semidefinite (zᵀJz is the variance of z under p), J·1 = 0, and of rank n - 1 when all n
    weights are positive.
    """
    out = -(p[:, None] * p[None, :])
    for j in range(len(p)):
        out[j, j] = out[j, j] + p[j]
    return out


def jacobian_times(dom: ArrayDomain, p: np.ndarray, z: np.ndarray) -> np.ndarray:
    """J z = p ⊙ (z - ⟨p, z⟩), without forming J; J is its own transpose. Lean: AttnSpec.center."""
    return dom.center(p[None, :], z[None, :])[0]


def variance(p: np.ndarray, z: np.ndarray) -> Any:
    """zᵀ J z = Σ p_j (z_j - ⟨p, z⟩)²: the variance of z under p, never negative."""
    mean = (p * z).sum()
    return (p * (z - mean) * (z - mean)).sum()


def tempered(dom: ArrayDomain, scores: Sequence[Any], alpha: Any) -> np.ndarray:
    """softmax(α s), α being the inverse temperature: α = 0 is uniform, a larger α is sharper."""
    return probabilities(dom, [s * alpha for s in scores])


def sharpening(dom: ArrayDomain, scores: Sequence[Any], alpha: Any) -> np.ndarray:
    """dp/dα = p ⊙ (s - ⟨p, s⟩) along p = softmax(α s): scores above the mean gain."""
    p = tempered(dom, scores, alpha)
    return jacobian_times(dom, p, np.array(list(scores), dtype=p.dtype))


def entropy(dom: ArrayDomain, p: np.ndarray) -> Any:
    """H(p) = -Σ p log p in nats, with 0 log 0 = 0."""
    total = dom.number(0.0)
    for x in p:
        if x != 0:
            total = total - x * log_of(dom, x)
    return total


def entropy_slope(dom: ArrayDomain, scores: Sequence[Any], alpha: Any) -> Any:
    """dH/dα = -α Var_p(s): for α ≥ 0 sharpening never raises the entropy; zero iff α = 0 or all scores tie."""
    p = tempered(dom, scores, alpha)
    return -(alpha * variance(p, np.array(list(scores), dtype=p.dtype)))


def cold_limit(scores: Sequence[Any]) -> list[Fraction]:
    """lim softmax(α s) as α → ∞: equal shares among the largest scores, exactly. Ties are not broken."""
    check_row(scores)
    top = max(scores)
    hits = [s == top for s in scores]
    return [Fraction(int(h), sum(hits)) for h in hits]


def reconstruct(dom: ArrayDomain, scores: Sequence[Any], log_partition: Any) -> np.ndarray:
    """p_j = exp(s_j - A): the weights from the scores and a saved log-partition.

    Lean: AttnProofs.weights_from_log_sum_exp.
    """
    check_row(scores)
    return np.array([exp_of(dom, s - log_partition) for s in scores])
