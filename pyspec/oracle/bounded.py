"""Matrices that carry a bound on their error, and on the error of a kernel that computes them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from attnspec.pyspec.calls.formats import Format


@dataclass(frozen=True, eq=False)
class Terms:
    """What a product summed: Σ|a||b| by entry, how many terms, and in how many tiles."""

    sizes: np.ndarray
    count: int
    tiles: int


@dataclass(frozen=True, eq=False)
class Bounded:
    """Float64 values and absolute errors of the same shape; `error` None means exact.

    `terms` tells of the sum behind this matrix, for a sum over grouped heads or broadcast axes, or a scale, that
    follows; `reach` is Σ(|q| + |k|) by entry for query·key products, and the multiplier for weights after dropout;
    `slip` is an error that the other factor of a product may have besides its own, and `unscaled` bounds the entries
    before the scale, for a kernel that scales the product instead.
    """

    value: np.ndarray
    error: np.ndarray | None = None
    terms: Callable[[], Terms] | None = None
    reach: Callable[[], np.ndarray] | None = None
    slip: float = 0.0
    unscaled: np.ndarray | None = None

    @property
    def bound(self) -> np.ndarray:
        """The error as an array."""
        return np.zeros_like(self.value) if self.error is None else self.error

    @cached_property
    def magnitude(self) -> np.ndarray:
        """An upper bound of |exact|."""
        return np.abs(self.value) if self.error is None else np.abs(self.value) + self.error

    @cached_property
    def computed(self) -> np.ndarray:
        """An upper bound of |what the kernel holds|."""
        return np.abs(self.value) if self.error is None else np.abs(self.value) + 2 * self.error


def growth(fmt: Format, roundings: np.ndarray | int) -> np.ndarray:
    """Relative error of that many roundings one after the other: (1 + u)^n - 1."""
    return np.expm1(np.asarray(roundings) * math.log1p(fmt.unit_roundoff))


def transposed(a: Bounded) -> Bounded:
    """The matrix with its last two axes exchanged."""
    error = None if a.error is None else np.swapaxes(a.error, -1, -2)
    unscaled = None if a.unscaled is None else np.swapaxes(a.unscaled, -1, -2)
    return Bounded(np.swapaxes(a.value, -1, -2), error, slip=a.slip, unscaled=unscaled)
