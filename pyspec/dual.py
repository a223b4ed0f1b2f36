"""Dual numbers re + eps·ε with ε² = 0: running the forward map over them yields its derivative as well."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnspec.pyspec.arrays import ArrayDomain

LEAN_MODULES = ("AttnSpec.Dual",)


@dataclass(frozen=True)
class Dual:
    """A value and its tangent. Lean: AttnSpec.Dual."""

    re: Any
    eps: Any = 0

    @staticmethod
    def of(x: Any) -> Dual:
        """The constant x."""
        return x if isinstance(x, Dual) else Dual(x, x * 0)

    def __add__(self, other: Any) -> Dual:
        o = Dual.of(other)
        return Dual(self.re + o.re, self.eps + o.eps)

    __radd__ = __add__

    def __neg__(self) -> Dual:
        return Dual(-self.re, -self.eps)

    def __sub__(self, other: Any) -> Dual:
        return self + (-Dual.of(other))

    def __rsub__(self, other: Any) -> Dual:
        return Dual.of(other) + (-self)

    def __mul__(self, other: Any) -> Dual:
        o = Dual.of(other)
        return Dual(self.re * o.re, self.re * o.eps + self.eps * o.re)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Dual:
        o = Dual.of(other)
        return Dual(self.re / o.re, (self.eps * o.re - self.re * o.eps) / (o.re * o.re))


class DualDomain(ArrayDomain):
    """Dual numbers over another domain. `exp` follows Lean's rule: exp(x + x'ε) = exp x + (x' exp x) ε."""

    name = "dual"
    has_logarithm = False

    def __init__(self, base: ArrayDomain, exp: Callable[[Any], Any] | None = None) -> None:
        self.base = base
        self._exp = exp or base.exp
        self.zero = Dual(base.number(0.0), base.number(0.0))

    def number(self, x: float) -> Dual:
        return Dual(self.base.number(x), self.base.number(0.0))

    def exp(self, x: Dual) -> Dual:
        e = self._exp(x.re)
        return Dual(e, x.eps * e)

    def tanh(self, x: Dual) -> Dual:
        t = self.base.tanh(x.re)
        return Dual(t, x.eps * (self.base.number(1.0) - t * t))

    def sqrt(self, x: Dual) -> Dual:
        root = self.base.sqrt(x.re)
        return Dual(root, x.eps / (root + root))

    def pair(self, re: np.ndarray, eps: np.ndarray) -> np.ndarray:
        """Matrix of duals from lifted values and tangents of the base domain."""
        out = np.empty(re.shape, dtype=object)
        for i in np.ndindex(re.shape):
            out[i] = Dual(re[i], eps[i])
        return out

    def parts(self, a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Values and tangents as matrices of the base domain."""
        return self.base.map(lambda d: d.re, a), self.base.map(lambda d: d.eps, a)
