"""Bounds of what the score families add: tanh, and directions of vectors.

|tanh x - tanh y| ≤ |x - y|. A length is a sum of D squares (relative error D·u, halved by the root) and a few
elementwise roundings, which the division that follows carries on.
"""

from __future__ import annotations

import numpy as np

from attnspec.pyspec.calls.formats import FLOAT64, Format
from attnspec.pyspec.lengths import Lengths
from attnspec.pyspec.oracle.bound_linear import LinearBounds
from attnspec.pyspec.oracle.bounded import Bounded

# Elementwise roundings between a vector and its direction, whichever way a kernel goes: squares, their sum, the
# root, a clamp, a reciprocal, a product.
_DIRECTION_ROUNDINGS = 6
# The same on the way back: division by the length twice, two products, the sum, and the direction's own.
_DIRECTION_GRADIENT_ROUNDINGS = 10


class ScoreBounds(LinearBounds):
    """The bound domain's part for scores other than dot products."""

    @property
    def _tanh_error(self) -> float:
        """Relative error of a computed tanh besides its argument's; this module's own tanh is within 4 of float64."""
        return self.ledger.tanh_error * self.unit + 4 * FLOAT64.unit_roundoff

    def tanh_each(self, stage: str, a: Bounded) -> Bounded:
        value = np.tanh(a.value)
        with np.errstate(all="ignore"):
            moved = np.minimum(a.bound, 2.0)
            error = moved + self._tanh_error * (np.abs(value) + 2 * moved) + self.tiny
        return self._stored(stage, value, np.where(np.isinf(a.bound), np.inf, error))

    def tanh_slope(self, stage: str, t: Bounded) -> Bounded:
        square = self.hadamard(stage, t, t)
        with np.errstate(all="ignore"):
            return self._elementwise(stage, 1.0 - square.value, square.bound)

    def _format(self, stage: str) -> Format:
        """The format in which the ledger leaves the result of that stage."""
        return self.storage if stage in self.ledger.stores else self.compute

    def unit_rows(self, a: Bounded, lengths: Lengths) -> tuple[Bounded, Bounded]:
        fmt, width = self._format("dot"), a.value.shape[-1]
        unit, zero = max(fmt.unit_roundoff, self.unit), lengths.zero
        with np.errstate(all="ignore"):
            squares = np.sum(a.value * a.value, axis=-1, keepdims=True)
            length = np.where(lengths.short, lengths.clamp, np.sqrt(squares))
            length = np.where(zero, 1.0, length)
            divisor = np.where(length == 0.0, 1.0, length)
            roundings = _DIRECTION_ROUNDINGS * unit + (width / 2 + 1) * self.unit
            # A square, or a partial sum, may be flushed to zero: that moves the sum by at most `tiny` each.
            flushed = (width + 1) * fmt.tiny / np.where(length == 0.0, 1.0, length * length)
            relative = np.expm1(roundings / (1.0 - unit)) * (1.0 + flushed) + flushed
            # A vector that is off by e in norm has a length off by e, and a direction off by at most 2 e over it.
            moved = np.sqrt(np.sum(a.bound * a.bound, axis=-1, keepdims=True)) / divisor
            relative = relative + moved * (1.0 + relative)
            small = (flushed < 0.25) & (moved < 0.25) & (relative < 0.5)
            broken = ~(small & (squares * (1.0 + relative) < fmt.largest) & (length > 0.0)) & ~zero
            inverse = np.nan_to_num(np.where(zero, 0.0, 1.0 / length), posinf=0.0)
            value = np.nan_to_num(np.where(zero, 0.0, a.value / length), posinf=0.0, neginf=0.0)
            # The relative error of an inverse is at most e / (1 - e).
            relative = np.where(broken, np.inf, relative / (1.0 - np.minimum(relative, 0.5)))
            error = np.where(zero, 0.0, relative * np.abs(value) + 2.0 * moved * (1.0 + relative) + 4 * fmt.tiny)
            # A direction has no entry beyond one, in exact arithmetic; a kernel may pass it by its error only.
            error = np.where(np.isnan(error) | broken, np.inf, error)
            inverse_error = np.where(zero, 0.0, relative * inverse + 4 * fmt.tiny)
            inverse_error = np.where(np.isnan(inverse_error) | broken | (inverse >= fmt.largest), np.inf, inverse_error)
            if lengths.clamp > 0.0:
                # Where the length may fall on either side of the clamp, so may the derivative.
                own = np.sqrt(squares)
                near = np.abs(own - lengths.clamp) <= 2.0 * relative * (own + lengths.clamp)
                inverse_error = np.where(near, np.inf, inverse_error)
        return Bounded(value, error), Bounded(inverse, inverse_error)

    def unit_rows_grad(self, stage: str, units: tuple[Bounded, Bounded], g: Bounded, lengths: Lengths) -> Bounded:
        (unit, inverse), zero, short = units, lengths.zero, lengths.short
        fmt, width = self._format("scaled_grad"), g.value.shape[-1]
        step = max(fmt.unit_roundoff, self.unit)
        rate = np.expm1((_DIRECTION_GRADIENT_ROUNDINGS * step + width * self.unit) / (1.0 - step))
        with np.errstate(all="ignore"):
            inner = np.sum(unit.value * g.value, axis=-1, keepdims=True)
            sizes = np.sum(unit.computed * g.computed, axis=-1, keepdims=True)
            spread = np.sum(unit.bound * g.computed + unit.magnitude * g.bound, axis=-1, keepdims=True)
            spread = spread + width * fmt.tiny
            along_error = unit.bound * (sizes + spread) + unit.magnitude * spread + rate * unit.computed * sizes
            along = np.where(short, 0.0, unit.value * inner)
            along_error = np.where(short, 0.0, along_error)
            along_size = np.where(short, 0.0, unit.computed * sizes)
            difference = g.value - along
            error = g.bound + along_error + rate * (g.computed + along_size) + 4 * fmt.tiny
            value = difference * inverse.value
            # Division by the length may come first: its rounding is relative to each term, not to their difference.
            total = error * inverse.magnitude + (g.computed + along_size) * inverse.bound + 4 * fmt.tiny
            # A kernel may divide by the length twice before it multiplies: what is flushed there is scaled by g.
            total = total + fmt.tiny * (width + np.sum(g.computed, axis=-1, keepdims=True)) * unit.magnitude
            top = (g.computed + along_size) * inverse.computed
            total = np.where(np.isnan(total) | ~(top < fmt.largest) | ~np.isfinite(value), np.inf, total)
            total = np.where(zero, 0.0, total)
        return self._stored(stage, np.nan_to_num(np.where(zero, 0.0, value)), total)
