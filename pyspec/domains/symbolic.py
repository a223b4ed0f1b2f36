"""Symbols (sympy): to compare formulas, not numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import sympy

from attnspec.pyspec.arrays import ArrayDomain


class SymbolicDomain(ArrayDomain):
    """Matrices of sympy expressions. Floats enter as the exact rationals they are."""

    name = "symbolic"
    zero = sympy.Integer(0)

    def number(self, x: Any) -> Any:
        if isinstance(x, sympy.Basic):
            return x
        if x in (float("-inf"), float("inf")):
            return sympy.oo if x > 0 else -sympy.oo
        return sympy.Rational(*float(x).as_integer_ratio())

    def lift(self, array: np.ndarray) -> np.ndarray:
        return self.map(self.number, np.asarray(array))

    def exp(self, x: Any) -> Any:
        return sympy.exp(x)

    def log(self, x: Any) -> Any:
        return sympy.log(x)

    def tanh(self, x: Any) -> Any:
        return sympy.tanh(x)

    def sqrt(self, x: Any) -> Any:
        return sympy.sqrt(x)
