"""What one attention row looks like: entropy, effective support, mass of the largest weights, gaps.

Descriptions, not objectives: a sharp row is not better than a flat one. Keep rows apart by layer, head and query
kind; a mean over all of them hides a mixture of copying and averaging heads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from attnspec.pyspec.arrays import ArrayDomain
from attnspec.pyspec.study.rows import check_rows, exp_of


@dataclass(frozen=True, eq=False)
class RowDiagnostics:
    """Arrays [..] over rows; rows without a visible key hold NaN (nothing to describe), and `keys` 0.

    entropy: H in nats. normalised_entropy: H / log n, in [0, 1]; 0 for a single key, whose row has no choice.
    effective_support: exp H, the number of equally weighted keys with that entropy. top_mass: sum of the `top`
    largest weights. maximum: the largest weight. gap: log of the largest over the second largest weight, which is
    the difference of their scores; inf for a single key or where the second weight is zero.
    """

    keys: np.ndarray
    entropy: np.ndarray
    normalised_entropy: np.ndarray
    effective_support: np.ndarray
    top: int
    top_mass: np.ndarray
    maximum: np.ndarray
    gap: np.ndarray


def diagnose(weights: np.ndarray, visible: np.ndarray, *, top: int = 1) -> RowDiagnostics:
    """Diagnostics of every row of weights [.., K] (before dropout), float64, under its visibility.

    A ValueError unless top ≥ 1; a RowError when a visible weight is not finite.
    """
    if top < 1:
        raise ValueError(f"top = {top}: expected at least one weight")
    visible = np.broadcast_to(visible, weights.shape)
    keys = visible.sum(axis=-1)
    some = keys > 0
    check_rows(visible[some], weights[some])
    p = np.where(visible, weights, 0.0)
    with np.errstate(all="ignore"):
        entropy = -np.where(p > 0, p * np.log(np.where(p > 0, p, 1.0)), 0.0).sum(axis=-1) + 0.0
        normalised = np.where(keys > 1, entropy / np.log(np.maximum(keys, 2)), 0.0)
        ordered = -np.sort(-p, axis=-1)
        width = p.shape[-1]
        first = ordered[..., 0] if width else np.zeros(keys.shape)
        second = ordered[..., 1] if width > 1 else np.zeros(keys.shape)
        gap = np.log(first) - np.log(second)
    nothing = np.where(some, 0.0, np.nan)
    return RowDiagnostics(
        keys=keys,
        entropy=entropy + nothing,
        normalised_entropy=normalised + nothing,
        effective_support=np.exp(entropy) + nothing,
        top=top,
        top_mass=ordered[..., :top].sum(axis=-1) + nothing,
        maximum=first + nothing,
        gap=np.where(some, gap, np.nan),
    )


def span_mass(weights: np.ndarray, span: np.ndarray) -> np.ndarray:
    """Mass of each row [.., K] on the keys that a boolean `span` marks as evidence."""
    return np.where(span, weights, 0.0).sum(axis=-1)


def sharpest_cosine_weight(dom: ArrayDomain, keys: int, scale: float = 1.0) -> Any:
    """The largest weight that cosine scores allow among `keys` keys: one at +1, the others at -1.

    1 / (1 + (keys - 1) exp(-2 scale)): about 0.055 for 128 keys and no scale, so bounded scores need one.
    """
    others = dom.number(float(keys - 1)) * exp_of(dom, dom.number(-2.0) * dom.number(scale))
    return dom.number(1.0) / (dom.number(1.0) + others)
