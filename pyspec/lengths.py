"""Lengths of vectors, classified before anything is rounded: zero, below a clamp, or ordinary."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np


@dataclass(frozen=True, eq=False)
class Lengths:
    """Which rows of a matrix have no direction of their own, as boolean columns [.., 1].

    zero: the row is the zero vector, and its direction is the zero vector too. short: its length is below `clamp`
    (the zero vector's as well), which is then divided by instead. clamp 0 means that there is none.
    """

    zero: np.ndarray
    short: np.ndarray
    clamp: float = 0.0


def lengths_of(vectors: np.ndarray, clamp: float = 0.0) -> Lengths:
    """The lengths of float64 rows, decided in exact arithmetic, so that every domain takes the same branch."""
    zero = ~(vectors != 0).any(axis=-1, keepdims=True)
    short = np.zeros_like(zero)
    if clamp > 0.0:
        limit = Fraction(clamp) ** 2
        for row in np.ndindex(vectors.shape[:-1]):
            short[row] = sum((Fraction(float(x)) ** 2 for x in vectors[row]), Fraction(0)) < limit
        zero = zero & ~short
    return Lengths(zero, short, clamp)
