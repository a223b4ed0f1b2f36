"""The small algebra the spec is written over: matrices of some number, with named stages.

A *domain* gives meaning to a matrix: floats, rationals, enclosures, symbols, or values with error bounds.
Every operation that a kernel would round carries a *stage* name (`STAGES`); ordinary domains ignore it, and the
bound domain looks up how the declared ledger rounds there. Results that have a name of their own are handed to
`keep`, which a recording twin of a domain (attnspec.pyspec.domains.recording) stores.
The leading axes of every matrix are batch and heads: they are outer maps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

import numpy as np

from attnspec.pyspec.lengths import Lengths

STAGES = (
    "dot", "scaled", "capped", "alibi", "biased", "weights", "consumed", "output", "lse",
    "consumed_grad", "weights_grad", "delta", "scores_grad", "capped_grad", "scaled_grad", "alibi_grad",
    "grad_query", "grad_key", "grad_value", "grad_bias", "grad_slopes",
)  # fmt: skip

M = TypeVar("M")


class Domain(ABC, Generic[M]):
    """What the spec needs of a number system. `stage` arguments name the place in the computation."""

    name: str
    has_logarithm = True
    kept: dict[str, M] | None = None

    def keep(self, **stages: M) -> None:
        """Results by the name of their stage: stored by a recording twin, of no effect elsewhere."""
        if self.kept is not None:
            self.kept.update(stages)

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

    # What scores other than dot products need (attnspec.pyspec.scores).

    @abstractmethod
    def tanh_each(self, stage: str, a: M) -> M:
        """tanh of each entry."""

    @abstractmethod
    def tanh_slope(self, stage: str, t: M) -> M:
        """1 - T ⊙ T for T = tanh X: its derivative there."""

    @abstractmethod
    def unit_rows(self, a: M, lengths: Lengths) -> tuple[M, M]:
        """Each row divided by its length, and one over the lengths [.., 1]; both zero for rows of length zero."""

    @abstractmethod
    def unit_rows_grad(self, stage: str, units: tuple[M, M], g: M, lengths: Lengths) -> M:
        """(g - û ⟨û, g⟩) / length by row: the derivative of `unit_rows` applied to g, and its own transpose.

        Below a clamp the divisor is a constant, so there only g over it is left; zero for rows of length zero.
        """

    @abstractmethod
    def shape(self, a: M) -> tuple[int, ...]:
        """Lengths of all axes."""

    @abstractmethod
    def reshape(self, a: M, shape: tuple[int, ...]) -> M:
        """The same entries, row by row, in another shape."""

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

    def consumed_weights(self, consumed: M) -> M:
        """Weights after dropout as the products that consume them see them (cast to storage)."""
        return consumed

    def output(self, consumed: M, value: M) -> M:
        """Weights times values, and the cast to the output's format."""
        return self.mul("output", consumed, value)

    def backward_weights(self, visible: np.ndarray, scores: M, weights: M) -> M:
        """The weights as the backward pass sees them. Lean: AttnProofs.shift_invariance licenses recomputing."""
        return weights

    def scores_grad(self, weights: M, weights_grad: M, output: M, grad_output: M) -> M:
        """Gradient of the scores. Lean: AttnSpec.scoresGrad; delta_contraction licenses D = ⟨G, O⟩."""
        return self.center(weights, weights_grad)
