"""The small algebra the spec is written over: matrices of some number, with named stages.

A *domain* gives meaning to a matrix: floats, rationals, enclosures, symbols, or values with error bounds.
Every operation that a kernel would round carries a *stage* name (`STAGES`); ordinary domains ignore it, the
bound domain looks up how the declared ledger rounds there, and a trace can record it.
The leading axes of every matrix are batch and heads: they are outer maps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

import numpy as np

LEAN_MODULES = ("AttnSpec.Sum", "AttnSpec.Matrix", "AttnSpec.Exp")

STAGES = (
    "dot", "scaled", "capped", "alibi", "biased", "weights", "consumed", "output", "lse",
    "consumed_grad", "weights_grad", "delta", "scores_grad", "capped_grad", "scaled_grad", "alibi_grad",
    "grad_query", "grad_key", "grad_value", "grad_bias", "grad_slopes",
)  # fmt: skip

M = TypeVar("M")


class Domain(ABC, Generic[M]):
    """What the spec needs of a number system. `stage` arguments name the place in the computation."""

    name: str

    @abstractmethod
    def lift(self, array: np.ndarray) -> M:
        """Exact matrix of these float64 values."""

    @abstractmethod
    def mul(self, stage: str, a: M, b: M) -> M:
        """A B. Lean: AttnSpec.mul."""

    @abstractmethod
    def mul_t(self, stage: str, a: M, b: M) -> M:
        """A Bᵀ. Lean: AttnSpec.mulT."""

    @abstractmethod
    def t_mul(self, stage: str, a: M, b: M) -> M:
        """Aᵀ B. Lean: AttnSpec.tMul."""

    @abstractmethod
    def add(self, stage: str, a: M, b: M) -> M:
        """A + B, elementwise."""

    @abstractmethod
    def hadamard(self, stage: str, a: M, b: M) -> M:
        """A ⊙ B, elementwise. Lean: AttnSpec.hadamard."""

    @abstractmethod
    def times(self, stage: str, c: float, a: M) -> M:
        """c A for one exact number c."""

    @abstractmethod
    def take(self, a: M, heads: np.ndarray) -> M:
        """Gather along the head axis (grouped heads)."""

    @abstractmethod
    def sum_axis(self, stage: str, a: M, axis: int) -> M:
        """Sum over one axis, which stays with length one."""

    @abstractmethod
    def stack_heads(self, parts: list[M]) -> M:
        """Join matrices of one head each along the head axis."""

    @abstractmethod
    def softcap(self, cap: float, a: M) -> M:
        """c tanh(A / c), elementwise, for one exact number c > 0. Lean: AttnSpec.Softcap.softcap."""

    @abstractmethod
    def softcap_grad(self, cap: float, a: M, g: M) -> M:
        """G ⊙ (1 - tanh²(A / c)): the derivative of `softcap` at A applied to G, and its own transpose."""

    @abstractmethod
    def cut(self, a: M, axis: int, start: int, stop: int) -> M:
        """The positions start to stop - 1 of one axis."""

    @abstractmethod
    def softmax(self, visible: np.ndarray, scores: M) -> M:
        """Row softmax over visible keys; the zero row where none is visible. Lean: AttnSpec.softmax."""

    @abstractmethod
    def lse(self, visible: np.ndarray, scores: M) -> M:
        """Row log-sum-exp over visible keys, one column; -inf where none is visible."""

    @abstractmethod
    def center(self, weights: M, x: M) -> M:
        """P ⊙ (X - ⟨P, X⟩) row by row. Lean: AttnSpec.center."""

    def add_up(self, stage: str, parts: list[M]) -> M:
        """The sum of one matrix or more, elementwise; a kernel may add them in any order."""
        total = parts[0]
        for part in parts[1:]:
            total = self.add(stage, total, part)
        return total

    def along(self, stage: str, a: M, steps: np.ndarray, reach: np.ndarray, summed: tuple[int, ...] = ()) -> M:
        """A ⊙ steps for whole numbers [Q,K]; A may have length 1 where they have more.

        A kernel may put numbers up to `reach` in their place, all of a row moved by one amount, where what follows does
        not see it. summed: the lengths of the axes that are summed afterwards.
        """
        return self.hadamard(stage, a, self.lift(steps))

    def settle(self, stage: str, a: M) -> M:
        """A finished tensor, as it is handed over (the cast to storage)."""
        return a

    # A kernel may recompute or contract where the spec reuses; in exact arithmetic these are the same, so
    # only the bound domain tells them apart (it charges for the way the ledger declares).

    def output(self, consumed: M, value: M) -> M:
        """Weights times values, and the cast to the output's format."""
        return self.mul("output", consumed, value)

    def backward_weights(self, visible: np.ndarray, scores: M, weights: M) -> M:
        """The weights as the backward pass sees them. Lean: AttnProofs.shift_invariance licenses recomputing."""
        return weights

    def backward_consumed(self, consumed: M) -> M:
        """Weights after dropout as the product for the value gradient sees them."""
        return consumed

    def scores_grad(self, weights: M, weights_grad: M, output: M, grad_output: M) -> M:
        """Gradient of the scores. Lean: AttnSpec.scoresGrad; delta_contraction licenses D = ⟨G, O⟩."""
        return self.center(weights, weights_grad)


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
        raise NotImplementedError(f"the {self.name} domain has no tanh: it cannot evaluate a softcap")

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

    def cut(self, a: np.ndarray, axis: int, start: int, stop: int) -> np.ndarray:
        return a[(slice(None),) * axis + (slice(start, stop),)]

    def softmax(self, visible: np.ndarray, scores: np.ndarray) -> np.ndarray:
        from attnspec.pyspec import softmax

        return softmax.softmax(self, visible, scores)

    def lse(self, visible: np.ndarray, scores: np.ndarray) -> np.ndarray:
        from attnspec.pyspec import softmax

        return softmax.lse(self, visible, scores)

    def center(self, weights: np.ndarray, x: np.ndarray) -> np.ndarray:
        from attnspec.pyspec import softmax

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
