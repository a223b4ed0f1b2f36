"""Attention in pieces: partial softmax states over disjoint key blocks, merged in any order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from attnspec.pyspec.arrays import ArrayDomain

LEAN_MODULES = ("AttnSpec.Online",)


@dataclass(frozen=True, eq=False)
class Acc:
    """State of one row over the keys seen so far: shift r, mass Σ exp(s_j - r), and out Σ exp(s_j - r) v_j.

    The shift is any number (a running maximum in kernels). No key seen: mass and out are zero.
    Lean: AttnSpec.Acc.
    """

    shift: Any
    mass: Any
    out: np.ndarray


def block(dom: ArrayDomain, shift: Any, visible: np.ndarray, scores: np.ndarray, value: np.ndarray) -> Acc:
    """State of one row over the visible keys of a block. scores [K], value [K,Dv]. Lean: AttnSpec.Acc.block."""
    terms = dom.masked_exp(visible, scores - shift)
    return Acc(shift, dom.sum(terms, 0)[0], dom.matmul(terms[None, :], value)[0])


def merge(dom: ArrayDomain, shift: Any, a: Acc, b: Acc) -> Acc:
    """State over the union of two disjoint blocks, with a new shift. Lean: AttnSpec.Acc.merge."""
    left, right = dom.exp(a.shift - shift), dom.exp(b.shift - shift)
    return Acc(shift, a.mass * left + b.mass * right, a.out * left + b.out * right)


def finish(dom: ArrayDomain, a: Acc) -> np.ndarray:
    """The row's output, out / mass; zero where no key was seen. Lean: AttnSpec.Acc.finish."""
    return a.out * 0 if a.mass == 0 else a.out / a.mass
