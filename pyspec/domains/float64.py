"""Plain float64 arithmetic: the fast path, and the only reading for large shapes."""

from __future__ import annotations

from typing import Any

import numpy as np

from attnspec.pyspec.arrays import ArrayDomain
from attnspec.pyspec.lengths import Lengths


def masked_row_max(visible: np.ndarray, scores: np.ndarray, default: Any) -> np.ndarray:
    """Largest visible entry of each row, one column; `default` where none is visible. Works on number objects."""
    column = np.empty((*scores.shape[:-1], 1), dtype=scores.dtype)
    for row in np.ndindex(scores.shape[:-1]):
        seen = scores[row][visible[row]]
        column[row] = max(seen) if len(seen) else default
    return column


class Float64Domain(ArrayDomain):
    """Matrices of float64, with the row maximum subtracted before exp."""

    name = "float64"
    zero = 0.0

    def number(self, x: float) -> float:
        return float(x)

    def lift(self, array: np.ndarray) -> np.ndarray:
        return np.asarray(array, dtype=np.float64)

    def exp(self, x: float) -> float:
        return float(np.exp(x))

    def log(self, x: float) -> float:
        return float(np.log(x))

    def tanh(self, x: float) -> float:
        return float(np.tanh(x))

    def sqrt(self, x: float) -> float:
        return float(np.sqrt(x))

    def softcap(self, cap: float, a: np.ndarray) -> np.ndarray:
        return cap * np.tanh(a / cap)

    def softcap_grad(self, cap: float, a: np.ndarray, g: np.ndarray) -> np.ndarray:
        t = np.tanh(a / cap)
        return np.asarray(g * (1.0 - t * t))

    def tanh_each(self, stage: str, a: np.ndarray) -> np.ndarray:
        return np.asarray(np.tanh(a))

    def unit_rows(self, a: np.ndarray, lengths: Lengths) -> tuple[np.ndarray, np.ndarray]:
        length = np.sqrt(self.sum(a * a, -1))
        length = np.where(lengths.short, lengths.clamp, np.where(lengths.zero, 1.0, length))
        return a / length, np.where(lengths.zero, 0.0, 1.0 / length)

    def row_shift(self, visible: np.ndarray, scores: np.ndarray) -> np.ndarray:
        top = np.max(scores, axis=-1, keepdims=True, initial=-np.inf, where=visible)
        top[top == -np.inf] = 0.0
        return top

    def masked_exp(self, visible: np.ndarray, a: np.ndarray) -> np.ndarray:
        out = np.exp(np.where(visible, a, -np.inf))
        return np.asarray(out)

    def log_rows(self, column: np.ndarray, empty: np.ndarray) -> np.ndarray:
        out = np.log(np.where(empty, 1.0, column))
        out[empty] = -np.inf
        return out

    def lower(self, a: np.ndarray) -> np.ndarray:
        """The matrix itself."""
        return a
