"""The row softmax over visible keys, its log-partition and its centring helper."""

from __future__ import annotations

from typing import Protocol

import numpy as np

LEAN_MODULES = ("AttnSpec.Softmax",)


class RowArithmetic(Protocol):
    """What a row softmax needs of numbers in arrays (attnspec.pyspec.arrays.ArrayDomain has it)."""

    def row_shift(self, visible: np.ndarray, scores: np.ndarray) -> np.ndarray | None: ...

    def masked_exp(self, visible: np.ndarray, a: np.ndarray) -> np.ndarray: ...

    def sum(self, a: np.ndarray, axis: int) -> np.ndarray: ...

    def divide_rows(self, a: np.ndarray, column: np.ndarray, empty: np.ndarray) -> np.ndarray: ...

    def log_rows(self, column: np.ndarray, empty: np.ndarray) -> np.ndarray: ...

    def keep(self, **stages: np.ndarray) -> None: ...


def numerator(domain: RowArithmetic, visible: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """n_ij = exp(s_ij - shift_i) where visible, else 0; the shift cancels. Lean: AttnSpec.numerator."""
    shift = domain.row_shift(visible, scores)
    if shift is None:
        return domain.masked_exp(visible, scores)
    domain.keep(row_max=shift)
    return domain.masked_exp(visible, scores - shift)


def denominator(domain: RowArithmetic, numerators: np.ndarray) -> np.ndarray:
    """l_i = Σ_j n_ij, one column. Lean: AttnSpec.denominator."""
    return domain.sum(numerators, -1)


def softmax(domain: RowArithmetic, visible: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """P_ij = n_ij / l_i; the zero row where no key is visible. Lean: AttnSpec.softmax."""
    n = numerator(domain, visible, scores)
    total = denominator(domain, n)
    domain.keep(exp=n, denominator=total)
    return domain.divide_rows(n, total, np.logical_not(visible.any(axis=-1, keepdims=True)))


def lse(domain: RowArithmetic, visible: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """L_i = log Σ_j visible exp s_ij, one column; -inf where no key is visible. Only where the domain has log."""
    shift = domain.row_shift(visible, scores)
    n = domain.masked_exp(visible, scores if shift is None else scores - shift)
    logs = domain.log_rows(denominator(domain, n), np.logical_not(visible.any(axis=-1, keepdims=True)))
    return logs if shift is None else logs + shift


def center(domain: RowArithmetic, weights: np.ndarray, x: np.ndarray) -> np.ndarray:
    """P ⊙ (X - ⟨P, X⟩) row by row: the softmax's derivative applied to X. Lean: AttnSpec.center."""
    return weights * (x - domain.sum(weights * x, -1))
