"""Maps from a row of scores to a row of weights: four ways to the same softmax, and named maps that are others.

Native, safe, scalar-online and block-online normalisation are one map in exact arithmetic; sparsemax and α-entmax
are different models. All of them refuse an illegal row first (`attnspec.pyspec.study.rows.check_row`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from attnspec.pyspec.arrays import ArrayDomain
from attnspec.pyspec.study.rows import RowError, check_row, exp_of, log_of


@dataclass(frozen=True)
class Normaliser:
    """State of a running denominator: the largest score seen and Σ exp(s - shift).

    `shift` None: nothing seen yet, so that no difference of infinities is ever formed. Lean: AttnSpec.Acc without
    its out part.
    """

    shift: Any = None
    mass: Any = 0


def native(dom: ArrayDomain, scores: Sequence[Any]) -> Normaliser:
    """Σ exp(s) without a shift: right in exact arithmetic, overflows early in floats."""
    check_row(scores)
    return Normaliser(dom.number(0.0), _sum(dom, [exp_of(dom, s) for s in scores]))


def safe(dom: ArrayDomain, scores: Sequence[Any]) -> Normaliser:
    """Two passes: the maximum, then Σ exp(s - max)."""
    check_row(scores)
    top = max(scores)
    return Normaliser(top, _sum(dom, [exp_of(dom, s - top) for s in scores]))


def online(dom: ArrayDomain, scores: Iterable[Any]) -> Normaliser:
    """One pass, score by score."""
    row = list(scores)
    check_row(row)
    state = Normaliser()
    for s in row:
        state = merge(dom, state, Normaliser(s, dom.number(1.0)))
    return state


def online_blocks(dom: ArrayDomain, scores: Sequence[Any], block: int) -> Normaliser:
    """One pass, `block` scores at a time."""
    if block < 1:
        raise ValueError(f"block = {block}: expected at least one score")
    check_row(scores)
    state = Normaliser()
    for start in range(0, len(scores), block):
        part = scores[start : start + block]
        top = max(part)
        state = merge(dom, state, Normaliser(top, _sum(dom, [exp_of(dom, s - top) for s in part])))
    return state


def merge(dom: ArrayDomain, a: Normaliser, b: Normaliser) -> Normaliser:
    """State over the union of two disjoint parts; the empty state is its unit. Lean: AttnSpec.Acc.merge."""
    if a.shift is None:
        return b
    if b.shift is None:
        return a
    shift = max(a.shift, b.shift)
    return Normaliser(shift, a.mass * exp_of(dom, a.shift - shift) + b.mass * exp_of(dom, b.shift - shift))


def weights(dom: ArrayDomain, scores: Sequence[Any], state: Normaliser) -> list[Any]:
    """P_j = exp(s_j - shift) / mass."""
    if state.shift is None:
        raise RowError("the normaliser has seen no score: softmax of an empty support is undefined")
    return [exp_of(dom, s - state.shift) / state.mass for s in scores]


def log_mass(dom: ArrayDomain, state: Normaliser) -> Any:
    """LSE = shift + log mass."""
    if state.shift is None:
        raise RowError("the normaliser has seen no score: its log-sum-exp is undefined")
    return state.shift + log_of(dom, state.mass)


def _sum(dom: ArrayDomain, terms: Sequence[Any]) -> Any:
    total = dom.number(0.0)
    for t in terms:
        total = total + t
    return total


def sparsemax(scores: Sequence[Any]) -> list[Fraction]:
    """The point of the simplex nearest to the scores (Euclidean), exactly. Not softmax: it has exact zeros."""
    check_row(scores)
    s = [Fraction(x) for x in scores]
    tau = _sparse_threshold(s)
    return [max(x - tau, Fraction(0)) for x in s]


def _sparse_threshold(s: list[Fraction]) -> Fraction:
    total, tau = Fraction(0), s[0]
    for count, x in enumerate(sorted(s, reverse=True), start=1):
        total += x
        if 1 + count * x > total:
            tau = (total - 1) / count
    return tau


def sparsemax_jvp(scores: Sequence[Any], tangent: Sequence[Any]) -> list[Fraction]:
    """Its derivative: on the support, the tangent less its mean there; zero off the support.

    Defined where no score sits on the threshold; a RowError names one that does.
    """
    p = sparsemax(scores)
    tau = _sparse_threshold([Fraction(x) for x in scores])
    for j, x in enumerate(scores):
        if Fraction(x) == tau:
            raise RowError(f"scores[{j}] = {x!r} lies on sparsemax's threshold, where it has no derivative")
    support = [j for j, x in enumerate(p) if x > 0]
    mean = sum((Fraction(tangent[j]) for j in support), Fraction(0)) / len(support)
    return [Fraction(tangent[j]) - mean if j in support else Fraction(0) for j in range(len(p))]


def entmax(scores: Sequence[float], alpha: float) -> list[float]:
    """α-entmax in float64: p_j = [(α-1) s_j - τ]₊^(1/(α-1)) with Σ p = 1. α = 2 is sparsemax, α → 1 softmax.

    α must exceed 1: at 1 it is softmax, which has names of its own here.
    """
    if not alpha > 1.0:
        raise ValueError(f"alpha = {alpha!r}: expected a number above 1 (softmax is the limit at 1)")
    check_row(scores)
    return [float(x) for x in entmax_rows(np.ones(len(scores), dtype=bool), np.array(scores, dtype=float), alpha)]


def sparsemax_rows(visible: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Sparsemax of many rows in float64, over visible entries; zero where none is visible."""
    return entmax_rows(visible, scores, 2.0)


def entmax_rows(visible: np.ndarray, scores: np.ndarray, alpha: float) -> np.ndarray:
    """α-entmax of many rows in float64, by bisection of the threshold until float64 can halve it no further."""
    top = np.max(scores, axis=-1, keepdims=True, initial=-np.inf, where=visible)
    top[~np.isfinite(top)] = 0.0
    z = np.where(visible, (alpha - 1.0) * (scores - top), -np.inf)
    power = 1.0 / (alpha - 1.0)
    low, high = np.full(top.shape, -1.0), np.zeros(top.shape)
    for _ in range(1100):
        middle = (low + high) / 2.0
        mass = (np.maximum(z - middle, 0.0) ** power).sum(axis=-1, keepdims=True)
        heavy = mass >= 1.0
        low, high = np.where(heavy, middle, low), np.where(heavy, high, middle)
        if ((middle == low) & (middle == high) | (np.nextafter(low, high) >= high)).all():
            break
    p = np.maximum(z - low, 0.0) ** power
    total = p.sum(axis=-1, keepdims=True)
    return p / np.where(total == 0.0, 1.0, total)


def entmax_jvp(weights_row: Sequence[float], alpha: float, tangent: Sequence[float]) -> np.ndarray:
    """Derivative of α-entmax at its own result p: (diag u - u uᵀ / Σu) ds with u = p^(2-α) on the support."""
    p, ds = np.array(weights_row, dtype=float), np.array(tangent, dtype=float)
    u = np.where(p > 0, np.where(p > 0, p, 1.0) ** (2.0 - alpha), 0.0)
    return u * (ds - (u @ ds) / u.sum())
