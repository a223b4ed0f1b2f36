"""Dropout as data: the realised multiplier that scales weights after the normaliser."""

from __future__ import annotations

import numpy as np

LEAN_MODULES = ("AttnSpec.Dropout",)


def multiplier(keep: np.ndarray, probability: float) -> np.ndarray:
    """Z = keep / (1 - p), float64. A ValueError unless 0 ≤ p < 1. Lean: AttnSpec.multiplier."""
    if not 0.0 <= probability < 1.0:
        raise ValueError(f"dropout probability {probability!r}: expected 0 <= p < 1")
    return np.asarray(keep, dtype=np.float64) / (1.0 - probability)
