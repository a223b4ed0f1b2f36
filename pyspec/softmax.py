"""The row softmax over visible keys, its log-partition and its centring helper."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from attnspec.pyspec.domain import ArrayDomain

LEAN_MODULES = ("AttnSpec.Softmax",)


def numerator(domain: ArrayDomain, visible: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """n_ij = exp(s_ij - shift_i) where visible, else 0; the shift cancels. Lean: AttnSpec.numerator."""
    shift = domain.row_shift(visible, scores)
    return domain.masked_exp(visible, scores if shift is None else scores - shift)


def denominator(domain: ArrayDomain, numerators: np.ndarray) -> np.ndarray:
    """l_i = Σ_j n_ij, one column. Lean: AttnSpec.denominator."""
    return domain.sum(numerators, -1)


def softmax(domain: ArrayDomain, visible: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """P_ij = n_ij / l_i; the zero row where no key is visible. Lean: AttnSpec.softmax."""
    n = numerator(domain, visible, scores)
    return domain.divide_rows(n, denominator(domain, n), np.logical_not(visible.any(axis=-1, keepdims=True)))


def lse(domain: ArrayDomain, visible: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """L_i = log Σ_j visible exp s_ij, one column; -inf where no key is visible. Only where the domain has log."""
    shift = domain.row_shift(visible, scores)
    n = domain.masked_exp(visible, scores if shift is None else scores - shift)
    logs = domain.log_rows(denominator(domain, n), np.logical_not(visible.any(axis=-1, keepdims=True)))
    return logs if shift is None else logs + shift


def center(domain: ArrayDomain, weights: np.ndarray, x: np.ndarray) -> np.ndarray:
    """P ⊙ (X - ⟨P, X⟩) row by row: the softmax's derivative applied to X. Lean: AttnSpec.center."""
    return weights * (x - domain.sum(weights * x, -1))
