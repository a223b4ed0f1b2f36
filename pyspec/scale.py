"""Where the scale may be applied: four placements that are equal in exact arithmetic."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

LEAN_MODULES = ("AttnSpec.Scale",)


def on_scores(scale: Any, query: np.ndarray, key: np.ndarray) -> np.ndarray:
    """α (Q Kᵀ). Lean: AttnSpec.Scale.onScores."""
    return scale * (query @ np.swapaxes(key, -1, -2))


def on_query(scale: Any, query: np.ndarray, key: np.ndarray) -> np.ndarray:
    """(α Q) Kᵀ. Lean: AttnSpec.Scale.onQuery."""
    return (scale * query) @ np.swapaxes(key, -1, -2)


def on_key(scale: Any, query: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Q (α K)ᵀ. Lean: AttnSpec.Scale.onKey."""
    return query @ np.swapaxes(scale * key, -1, -2)


def split(left: Any, right: Any, query: np.ndarray, key: np.ndarray) -> np.ndarray:
    """(β Q) (γ K)ᵀ, equal to the others when βγ = α. Lean: AttnSpec.Scale.split."""
    return (left * query) @ np.swapaxes(right * key, -1, -2)


def default_scale(key_width: int) -> float:
    """key_width ** -0.5 as the nearest float64; 1 when there is no width (every score is then zero)."""
    return 1.0 / math.sqrt(key_width) if key_width else 1.0
