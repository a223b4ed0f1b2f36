"""Matrices as numpy arrays, of float64 or of number objects: the domains whose numbers come one by one."""

from __future__ import annotations

from typing import Any

import numpy as np

from attnspec.pyspec import softmax
from attnspec.pyspec.domain import Domain
from attnspec.pyspec.lengths import Lengths

LEAN_MODULES = ("AttnSpec.Sum", "AttnSpec.Matrix", "AttnSpec.Exp")


class ArrayDomain(Domain[np.ndarray]):
    """Matrices as numpy arrays, of float64 or of number objects; arithmetic is that of the elements."""

    zero: Any = 0

    def number(self, x: float) -> Any:
        """The exact number of this float."""
        raise NotImplementedError

    def exp(self, x: Any) -> Any:
        """The exponential of one number."""
        raise NotImplementedError

    def log(self, x: Any) -> Any:
        """The natural logarithm of one number."""
        raise NotImplementedError

    def tanh(self, x: Any) -> Any:
        """The hyperbolic tangent of one number."""
        raise NotImplementedError(f"the {self.name} domain has no tanh: no softcap, and no additive scores")

    def sqrt(self, x: Any) -> Any:
        """The square root of one positive number."""
        raise NotImplementedError(f"the {self.name} domain has no square root: no cosine scores")

    def row_shift(self, visible: np.ndarray, scores: np.ndarray) -> np.ndarray | None:
        """A number per row to subtract before exp (it cancels), or None. Lean: AttnProofs.shift_invariance."""
        return None

    def map(self, f: Any, a: np.ndarray) -> np.ndarray:
        """Apply a function to each element."""
        out = np.empty(a.shape, dtype=object)
        out[...] = self.zero
        flat, source = out.reshape(-1), a.reshape(-1)
        for i in range(source.size):
            flat[i] = f(source[i])
        return flat.reshape(a.shape)

    def lift(self, array: np.ndarray) -> np.ndarray:
        return self.map(lambda x: self.number(float(x)), np.asarray(array))

    def sum(self, a: np.ndarray, axis: int) -> np.ndarray:
        """Sum over an axis that stays with length one; the empty sum is zero. Lean: AttnSpec.sum."""
        if a.shape[axis] == 0:
            shape = list(a.shape)
            shape[axis] = 1
            out = np.empty(shape, dtype=a.dtype)
            out[...] = self.zero
            return out
        return np.add.reduce(a, axis=axis, keepdims=True)

    def matmul(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """A B over leading axes; an empty inner axis gives zero."""
        if a.shape[-1] == 0:
            lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
            out = np.empty((*lead, a.shape[-2], b.shape[-1]), dtype=a.dtype)
            out[...] = self.zero
            return out
        return np.matmul(a, b)

    def mul(self, stage: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self.matmul(a, b)

    def mul_t(self, stage: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self.matmul(a, np.swapaxes(b, -1, -2))

    def t_mul(self, stage: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self.matmul(np.swapaxes(a, -1, -2), b)

    def add(self, stage: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a + b

    def hadamard(self, stage: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a * b

    def times(self, stage: str, c: float, a: np.ndarray) -> np.ndarray:
        return a * self.number(c)

    def take(self, a: np.ndarray, heads: np.ndarray) -> np.ndarray:
        return a[:, heads]

    def sum_axis(self, stage: str, a: np.ndarray, axis: int) -> np.ndarray:
        return self.sum(a, axis)

    def stack_heads(self, parts: list[np.ndarray]) -> np.ndarray:
        return np.concatenate(parts, axis=1)

    def softcap(self, cap: float, a: np.ndarray) -> np.ndarray:
        c = self.number(cap)
        return self.map(self.tanh, a / c) * c

    def softcap_grad(self, cap: float, a: np.ndarray, g: np.ndarray) -> np.ndarray:
        t = self.map(self.tanh, a / self.number(cap))
        return g * (self.number(1.0) - t * t)

    def tanh_each(self, stage: str, a: np.ndarray) -> np.ndarray:
        return self.map(self.tanh, a)

    def tanh_slope(self, stage: str, t: np.ndarray) -> np.ndarray:
        return self.number(1.0) - t * t

    def unit_rows(self, a: np.ndarray, lengths: Lengths) -> tuple[np.ndarray, np.ndarray]:
        squares = self.sum(a * a, -1)
        inverse = squares.copy()
        for i in np.ndindex(squares.shape):
            if lengths.zero[i]:
                inverse[i] = self.number(0.0)
            elif lengths.short[i]:
                inverse[i] = self.number(1.0) / self.number(lengths.clamp)
            else:
                inverse[i] = self.number(1.0) / self.sqrt(squares[i])
        return a * inverse, inverse

    def unit_rows_grad(
        self, stage: str, units: tuple[np.ndarray, np.ndarray], g: np.ndarray, lengths: Lengths
    ) -> np.ndarray:
        unit, inverse = units
        along = unit * self.sum(unit * g, -1)
        along[np.broadcast_to(lengths.short, along.shape)] = self.number(0.0)
        return (g - along) * inverse

    def shape(self, a: np.ndarray) -> tuple[int, ...]:
        return a.shape

    def reshape(self, a: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        return a.reshape(shape)

    def cut(self, a: np.ndarray, axis: int, start: int, stop: int) -> np.ndarray:
        return a[(slice(None),) * axis + (slice(start, stop),)]

    def softmax(self, visible: np.ndarray, scores: np.ndarray) -> np.ndarray:
        return softmax.softmax(self, visible, scores)

    def lse(self, visible: np.ndarray, scores: np.ndarray) -> np.ndarray:
        return softmax.lse(self, visible, scores)

    def center(self, weights: np.ndarray, x: np.ndarray) -> np.ndarray:
        return softmax.center(self, weights, x)

    def masked_exp(self, visible: np.ndarray, a: np.ndarray) -> np.ndarray:
        """exp where visible, zero elsewhere (hidden entries are never evaluated)."""
        out = np.empty(a.shape, dtype=object)
        out[...] = self.zero
        for where in np.argwhere(visible):
            i = tuple(where)
            out[i] = self.exp(a[i])
        return out

    def divide_rows(self, a: np.ndarray, column: np.ndarray, empty: np.ndarray) -> np.ndarray:
        """Each row divided by its denominator; zero rows where `empty` (the spec's 0⁻¹ = 0)."""
        safe = column.copy()
        safe[empty] = self.number(1.0)
        return a / safe

    def log_rows(self, column: np.ndarray, empty: np.ndarray) -> np.ndarray:
        """Logarithm of a column; -inf where `empty`."""
        out = np.empty(column.shape, dtype=object)
        for where in np.ndindex(column.shape):
            out[where] = self.number(float("-inf")) if empty[where] else self.log(column[where])
        return out
