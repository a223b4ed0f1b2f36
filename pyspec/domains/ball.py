"""Rigorous enclosures (flint balls): every result contains the exact value."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from flint import arb, arb_mat, ctx

from attnspec.pyspec.arrays import ArrayDomain

_SMALLEST_NORMAL = 2.0**-1022


@contextmanager
def precision(bits: int) -> Iterator[None]:
    """Run with balls of that many bits; the former precision comes back whatever happens."""
    former = ctx.prec
    ctx.prec = bits
    try:
        yield
    finally:
        ctx.prec = former


def outward(ball: arb) -> tuple[float, float]:
    """Float64 numbers below and above every point of the ball.

    float() of a ball's bounds is outward only for normal numbers: below them one step outward is added, and
    an overflowing lower bound is clamped to the largest float (mirrored above).
    """
    if not ball.is_finite():
        mid = float(ball.mid())
        return (mid, mid) if math.isinf(mid) and ball.is_exact() else (-math.inf, math.inf)
    if ball.is_exact() and ball.is_zero():
        return 0.0, 0.0
    with precision(53):
        lo, hi = float(ball.lower()), float(ball.upper())
    if abs(lo) < _SMALLEST_NORMAL:
        lo = math.nextafter(lo, -math.inf)
    if abs(hi) < _SMALLEST_NORMAL:
        hi = math.nextafter(hi, math.inf)
    largest = 1.7976931348623157e308
    return (largest if lo == math.inf else lo), (-largest if hi == -math.inf else hi)


class BallDomain(ArrayDomain):
    """Matrices of flint balls; run inside `precision(bits)`."""

    name = "ball"
    zero = arb(0)

    def number(self, x: float) -> arb:
        return arb(x)

    def exp(self, x: arb) -> arb:
        return x.exp()

    def log(self, x: arb) -> arb:
        return x.log()

    def tanh(self, x: arb) -> arb:
        return x.tanh()

    def sqrt(self, x: arb) -> arb:
        return x.sqrt()

    def row_shift(self, visible: np.ndarray, scores: np.ndarray) -> np.ndarray:
        # Any exact number serves as the shift, so the midpoints' maximum needs no comparison of balls.
        mids = np.array([float(s.mid()) for s in scores.reshape(-1)], dtype=np.float64).reshape(scores.shape)
        top = np.max(mids, axis=-1, keepdims=True, initial=-np.inf, where=visible)
        top[~np.isfinite(top)] = 0.0
        return self.lift(top)

    def matmul(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        # Whole-matrix products are many times faster than products of number objects.
        lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        rows, inner, cols = a.shape[-2], a.shape[-1], b.shape[-1]
        out = np.empty((*lead, rows, cols), dtype=object)
        out[...] = self.zero
        if 0 in (rows, inner, cols):
            return out
        a = np.broadcast_to(a, (*lead, rows, inner))
        b = np.broadcast_to(b, (*lead, inner, cols))
        for i in np.ndindex(lead):
            product = arb_mat(rows, inner, a[i].ravel().tolist()) * arb_mat(inner, cols, b[i].ravel().tolist())
            out[i] = np.array(product.entries(), dtype=object).reshape(rows, cols)
        return out

    def center(self, weights: np.ndarray, x: np.ndarray) -> np.ndarray:
        # On nearly one-hot rows X - ⟨P, X⟩ cancels at the large weight. X less its value at the heaviest key
        # is algebraically the same (rows of P sum to one, or are zero) and cancels nothing.
        if weights.shape[-1] == 0:
            return weights * x
        mids = np.array([float(w.mid()) for w in weights.reshape(-1)], dtype=np.float64).reshape(weights.shape)
        heaviest = np.argmax(mids, axis=-1, keepdims=True)
        return super().center(weights, x - np.take_along_axis(x, heaviest, axis=-1))

    def lower(self, a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Float64 lower and upper bounds, rounded outward."""
        pairs = [outward(ball) for ball in a.reshape(-1)]
        bounds = np.array(pairs, dtype=np.float64).reshape((*a.shape, 2)) if pairs else np.empty((*a.shape, 2))
        return bounds[..., 0], bounds[..., 1]
