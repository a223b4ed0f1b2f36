"""Arbitrary-precision floats (mpmath): an independent second opinion, not an enclosure."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np

from attnspec.pyspec.arrays import ArrayDomain
from attnspec.pyspec.domains.float64 import masked_row_max


class BigDomain(ArrayDomain):
    """Matrices of mpmath floats at `precision` bits, in a context of its own."""

    name = "big"

    def __init__(self, precision: int = 200) -> None:
        self.context = mpmath.mp.clone()
        self.context.prec = precision
        self.zero = self.context.mpf(0)

    def number(self, x: float) -> Any:
        return self.context.mpf(x)

    def exp(self, x: Any) -> Any:
        return self.context.exp(x)

    def log(self, x: Any) -> Any:
        return self.context.log(x)

    def tanh(self, x: Any) -> Any:
        return self.context.tanh(x)

    def sqrt(self, x: Any) -> Any:
        return self.context.sqrt(x)

    def row_shift(self, visible: np.ndarray, scores: np.ndarray) -> np.ndarray:
        return masked_row_max(visible, scores, self.zero)

    def lower(self, a: np.ndarray) -> np.ndarray:
        """The matrix rounded to float64."""
        return np.array([float(x) for x in a.reshape(-1)], dtype=np.float64).reshape(a.shape)
