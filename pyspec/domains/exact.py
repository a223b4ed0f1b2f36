"""Rational numbers with a rational stand-in for exp: what Lean computes, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from flint import fmpq

from attnspec.pyspec.arrays import ArrayDomain


def pade_exp(x: Any) -> Any:
    """(12 + 6x + x²) / (12 - 6x + x²): positive everywhere, rational, close to exp near 0. Lean: AttnSpec.padeExp."""
    square = x * x
    return (12 + 6 * x + square) / (12 - 6 * x + square)


def pade_tanh(x: Any) -> Any:
    """3x / (3 + x²), which is (e - 1) / (e + 1) with e = pade_exp(2x): rational, odd, close to tanh near 0.

    Like pade_exp it is a stand-in: a softcap's slope is 1 - t² of it, as the spec writes it, not its derivative.
    Lean: AttnSpec.padeTanh.
    """
    return 3 * x / (3 + x * x)


class ExactDomain(ArrayDomain):
    """Matrices of flint rationals. `exp` is any rational function of one rational; no shift is subtracted.

    There is no logarithm, so no LSE: ask `evaluate` for it without.
    """

    name = "exact"
    has_logarithm = False
    zero = fmpq(0)

    def __init__(self, exp: Callable[[Any], Any] = pade_exp, tanh: Callable[[Any], Any] = pade_tanh) -> None:
        self._exp = exp
        self._tanh = tanh

    def number(self, x: float | Fraction) -> fmpq:
        f = Fraction(x)
        return fmpq(f.numerator, f.denominator)

    def lift_fractions(self, array: np.ndarray) -> np.ndarray:
        """Matrix of these Fractions (an object array), exactly."""
        return self.map(self.number, np.asarray(array, dtype=object))

    def exp(self, x: fmpq) -> fmpq:
        return self._exp(x)

    def tanh(self, x: fmpq) -> fmpq:
        return self._tanh(x)

    def lower(self, a: np.ndarray) -> np.ndarray:
        """The matrix as an object array of Fractions."""
        return self.map(lambda x: Fraction(int(x.p), int(x.q)), a)
