"""Values with error bounds: what a kernel with a declared ledger may return, derived from the spec.

A `Bounded` (value, error) claims |v - x| ≤ error both for the float64 value v held here and for whatever
the kernel computes, x being exact. Rules: a dot or sum of n terms errs by n·u·Σ|a||b| in any order
(Jeannerod & Rump), each rounding by u|x| plus an absolute slack near zero, and a result that may pass the
format's largest number has an infinite error. Softmax is bounded in the log domain, so weights stay in
[0, 1] however large the logits.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from attnspec.pyspec.calls.formats import FLOAT64
from attnspec.pyspec.oracle.bound_scores import ScoreBounds
from attnspec.pyspec.oracle.bounded import Bounded
from attnspec.pyspec.oracle.ledger import NUMPY_FLOAT64, Ledger

# Past this log-domain width an interval says nothing, and exp would overflow.
_HOPELESS = 300.0


class _Rows(NamedTuple):
    """Softmax rows in the log domain: largest score, mass relative to it, weights, and e^δ by entry.

    A kernel's numerator is within e^±δ of the exact one, up to a factor that the row shares. `widest` is the
    largest δ of each row.
    """

    top: np.ndarray
    total: np.ndarray
    weights: np.ndarray
    grown: np.ndarray
    widest: np.ndarray


class BoundDomain(ScoreBounds):
    """The spec over `Bounded` matrices under one ledger."""

    name = "bound"

    def __init__(self, ledger: Ledger = NUMPY_FLOAT64) -> None:
        super().__init__(ledger)
        self._kept: tuple[Bounded, np.ndarray, _Rows] | None = None

    # the softcap

    def _capping(self, cap: float, a: Bounded) -> tuple[np.ndarray, np.ndarray]:
        """(error of tanh's argument in units of A, an upper bound of the slope wherever that argument may be)."""
        stored, size = "capped" in self.ledger.stores, a.computed
        # c, its reciprocal and the quotient round; the quotient may flush.
        relative = 3 * self.unit + (self.storage.unit_roundoff if stored else 0.0)
        argument = a.bound + relative * size + cap * (self.tiny + (self.storage.tiny if stored else 0.0))
        nearest = np.maximum(np.abs(a.value) - 2 * a.bound - relative * size, 0.0) / cap
        decay = np.exp(-2.0 * nearest)
        return argument, 4.0 * decay / (1.0 + decay) ** 2

    def _tanh_roundings(self) -> float:
        """Relative error of the softcap's tanh besides its argument's."""
        return self._tanh_error + (self.storage.unit_roundoff if "capped" in self.ledger.stores else 0.0)

    def _cap_usable(self, cap: float) -> bool:
        """Do the cap and its reciprocal exist in the accumulation format?"""
        return self.tiny <= cap < self.compute.largest and self.tiny <= 1.0 / cap < self.compute.largest

    def softcap(self, cap: float, a: Bounded) -> Bounded:
        with np.errstate(all="ignore"):
            argument, slope = self._capping(cap, a)
            value = cap * np.tanh(a.value / cap)
            largest = np.minimum(a.computed + argument, cap)
            # tanh rounds and may flush, c and the product round.
            error = argument * slope + (self._tanh_roundings() + 2 * self.unit) * largest + cap * self.tiny
            # Both lie within ±c, the kernel's up to roundings.
            error = np.minimum(error, cap * (2.0 + 2 * self._tanh_roundings() + 4 * self.unit))
            error = np.where(np.isfinite(a.bound) & self._cap_usable(cap), error, np.inf)
            return self._elementwise("capped", value, error)

    def softcap_grad(self, cap: float, a: Bounded, g: Bounded) -> Bounded:
        with np.errstate(all="ignore"):
            argument, steepest = self._capping(cap, a)
            decay = np.exp(-2.0 * np.abs(a.value) / cap)
            slope = 4.0 * decay / (1.0 + decay) ** 2
            # The slope's own derivative is -2 tanh(1 - tanh²), of size at most 0.77.
            error = np.minimum(0.77, 2.0 * steepest) * argument / cap
            # 1 - t² of a rounded t, perhaps read off the capped score again, keeps an absolute error only.
            error = error + 2 * (self._tanh_roundings() + 4 * self.unit) + 4 * self.tiny
            if "capped" in self.ledger.stores:
                error = error + 3 * self.storage.unit_roundoff + self.storage.tiny
            error = np.minimum(error, 1.0 + 8 * self.unit + 4 * self.storage.unit_roundoff)
            error = np.where(np.isfinite(a.bound) & self._cap_usable(cap), error, np.inf)
            # The derivative of c tanh(a / c), taken operation by operation, multiplies by c and divides by it again.
            roundings = 2 * self.unit * g.computed * (slope + error)
            whole = g.bound * (slope + error) + g.magnitude * error + roundings
            whole = np.where(g.computed * cap < self.compute.largest, whole, np.inf)
            # Nothing comes of a gradient that is exactly zero, on hidden keys, unless the slope is no number.
            whole = np.where((g.computed == 0.0) & np.isfinite(error), 0.0, whole)
            done = self._elementwise("capped_grad", g.value * slope, whole)
        hidden = (g.computed == 0.0) & np.isfinite(error)
        return Bounded(done.value, np.where(hidden, 0.0, done.bound))

    # softmax, in the log domain

    def _rows(self, visible: np.ndarray, s: Bounded) -> _Rows:
        """What softmax and LSE share; kept, since both are asked of the same scores."""
        if self._kept is None or self._kept[0] is not s or self._kept[1] is not visible:
            with np.errstate(all="ignore"):
                self._kept = (s, visible, self._new_rows(visible, s))
        return self._kept[2]

    def _new_rows(self, visible: np.ndarray, s: Bounded) -> _Rows:
        top = s.value.max(axis=-1, keepdims=True, initial=-np.inf, where=visible)
        top[top == -np.inf] = 0.0
        distance = np.where(visible, top - s.value, 0.0)
        numerators = np.where(visible, np.exp(-distance), 0.0)
        total = numerators.sum(axis=-1, keepdims=True)
        p = numerators / np.where(total == 0.0, 1.0, total)
        error = np.where(visible, s.bound, 0.0)
        worst = error.max(axis=-1, keepdims=True, initial=0.0)
        argument, exps = distance + error + worst, self.ledger.exp_error
        if self.ledger.key_tile is not None:
            # The rescalings' arguments add up to the way from the first tile's maximum to the last.
            argument += distance.max(axis=-1, keepdims=True, initial=0.0) + 2 * worst
            exps += -(-s.value.shape[-1] // self.ledger.key_tile) * (self.ledger.exp_error + 1)
        delta = error + self.unit * (self.ledger.exp_argument_roundings * argument + exps)
        return _Rows(top, total, p, np.exp(delta), delta.max(axis=-1, keepdims=True, initial=0.0))

    def softmax(self, visible: np.ndarray, s: Bounded) -> Bounded:
        _, _, p, grown, worst = self._rows(visible, s)
        keys = visible.shape[-1]
        if keys == 0:
            return Bounded(p, np.zeros_like(p))
        u, slop, rounding = self.unit, (keys + 2) * FLOAT64.unit_roundoff, (keys + 3) * self.unit
        with np.errstate(all="ignore"):
            # A weight that underflowed here may still be a number for a kernel whose logits are off by δ.
            up, down = np.where(visible, np.maximum(p, FLOAT64.tiny), 0.0) * grown, p / grown
            others_low = down.sum(axis=-1, keepdims=True) * (1 - slop) - down
            others_high = up.sum(axis=-1, keepdims=True) * (1 + slop) - up
            upper = up / (up + np.maximum(others_low, 0.0)) * (1 + rounding)
            lower = down / (down + np.maximum(others_high, 0.0)) * (1 - rounding)
            error = np.maximum(upper - p, p - lower)
            # The widths are centred on float64 values rather than on exact ones.
            error = np.minimum(error * np.exp(worst * (4 * FLOAT64.unit_roundoff / u)), 1.0)
            if worst.max(initial=0.0) < _HOPELESS:
                return self._stored_visible("weights", visible, p, error * (1 + rounding) + (keys + 4) * self.tiny)
            error = np.where(worst < _HOPELESS, error, 1.0) * (1 + rounding) + (keys + 4) * self.tiny
            # A score that may overflow makes the whole row infinity less infinity.
            broken = ~np.isfinite(worst)
            error = np.where(broken, np.inf, error)
        return self._stored_visible("weights", visible | broken, p, error)

    def _stored_visible(self, stage: str, visible: np.ndarray, value: np.ndarray, error: np.ndarray) -> Bounded:
        stored = self._stored(stage, value, error)
        return Bounded(stored.value, np.where(visible, stored.bound, 0.0))

    def lse(self, visible: np.ndarray, s: Bounded) -> Bounded:
        top, total, p, grown, _ = self._rows(visible, s)
        keys, empty = visible.shape[-1], total == 0.0
        with np.errstate(all="ignore"):
            value = np.where(empty, -np.inf, top + np.log(np.where(empty, 1.0, total)))
            widening = np.log((p * grown).sum(axis=-1, keepdims=True))
            # The second term is for this module's own sums.
            error = widening + (keys + 1) * self.unit + 2 * (keys + 2) * FLOAT64.unit_roundoff + (keys + 4) * self.tiny
            size = np.abs(value) + np.abs(top) + error + 4 * math.log(keys + 1) + 4
            error = error + self.unit * size
            error = np.where(np.isnan(error), np.inf, error)
        error = np.where(empty, 0.0, error)
        stored = self._stored("lse", np.where(empty, 0.0, value), error)
        return Bounded(value, np.where(empty, 0.0, stored.bound))

    def center(self, weights: Bounded, x: Bounded) -> Bounded:
        return self._center("weights_grad", weights, x, self._row_dots(weights, x))

    # the ledger's ways through the backward pass

    def output(self, consumed: Bounded, value: Bounded) -> Bounded:
        product = self._product("output", consumed, value)
        largest, keys = self.compute.largest, consumed.value.shape[-1]
        if "weights" in self.ledger.stores:
            return product
        with np.errstate(all="ignore"):
            most = value.computed.max(initial=0.0) * keys
            multiplier = None if consumed.reach is None else consumed.reach()
            if multiplier is not None:
                most = most * multiplier.max(initial=0.0)
            if most < largest:
                return product
            # A kernel that normalises last sums values by numerators of up to one, and these sums may overflow.
            seen = np.where(consumed.computed > 0, 1.0 if multiplier is None else multiplier, 0.0)
            return Bounded(product.value, np.where(seen @ value.computed < largest, product.bound, np.inf))

    def consumed_weights(self, consumed: Bounded) -> Bounded:
        stored = self._stored_visible("consumed", consumed.computed > 0, consumed.value, consumed.bound)
        return replace(stored, reach=consumed.reach)

    def backward_weights(self, visible: np.ndarray, scores: Bounded, weights: Bounded) -> Bounded:
        if self.ledger.weights == "saved":
            return weights
        lse = self.lse(visible, scores)
        with np.errstate(all="ignore"):
            gap = np.where(visible, np.abs(scores.value - np.where(np.isfinite(lse.value), lse.value, 0.0)), 0.0)
            delta = scores.bound + lse.bound
            roundings = self.ledger.exp_argument_roundings * (gap + delta) + self.ledger.exp_error
            delta = delta + self.unit * roundings
            error = np.maximum(weights.value, FLOAT64.tiny) * np.expm1(delta) + 4 * self.tiny
            error = np.maximum(error * np.exp(4 * delta * (FLOAT64.unit_roundoff / self.unit)), 0.0)
            error = np.where(~(delta < _HOPELESS), np.inf, error)
        broken = np.isinf(weights.bound)
        return Bounded(weights.value, np.where(broken, np.inf, np.where(visible, error, 0.0)))

    def scores_grad(self, weights: Bounded, weights_grad: Bounded, output: Bounded, grad_output: Bounded) -> Bounded:
        delta = self._row_dots(weights, weights_grad)
        if self.ledger.delta == "output":
            contracted = self._row_dots(grad_output, output)
            # Both are the same exact number, so one value may carry the other's error.
            own = self._float64_row_dots(weights, weights_grad)
            delta = Bounded(delta.value, np.maximum(contracted.bound, own))
        return self._center("scores_grad", weights, weights_grad, delta)

    def _float64_row_dots(self, a: Bounded, b: Bounded) -> np.ndarray:
        """Error of this module's own float64 value of the row dots."""
        ratio = FLOAT64.unit_roundoff / self.unit
        return self._row_dots(a, b).bound * ratio

    def _row_dots(self, a: Bounded, b: Bounded) -> Bounded:
        terms = a.value.shape[-1]
        with np.errstate(all="ignore"):
            each = a.bound * b.computed + a.magnitude * b.bound
            value = (a.value * b.value).sum(axis=-1, keepdims=True)
            sizes = (a.computed * b.computed).sum(axis=-1, keepdims=True)
            error = each.sum(axis=-1, keepdims=True) + terms * (self.unit * sizes + self.tiny)
            if sizes.max(initial=0.0) < self.compute.largest:
                return Bounded(value, error)
            error[~np.isfinite(value) | np.isnan(error) | ~(sizes < self.compute.largest)] = np.inf
        return Bounded(np.nan_to_num(value), error)

    def _center(self, stage: str, weights: Bounded, x: Bounded, delta: Bounded) -> Bounded:
        with np.errstate(all="ignore"):
            difference = x.value - delta.value
            spread = self._rounded(difference, x.bound + delta.bound, self.compute)
            error = weights.bound * (np.abs(difference) + 2 * spread) + weights.magnitude * spread
            value = weights.value * difference
            error = self._rounded(value, error, self.compute)
        # A hidden weight is exactly zero, and so is its gradient unless it multiplies an overflow.
        hidden = (weights.computed == 0) & np.isfinite(spread)
        stored = self._stored(stage, value, error)
        return Bounded(stored.value, np.where(hidden, 0.0, stored.bound))
