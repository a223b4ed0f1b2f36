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

from pyspec.domain import Domain
from pyspec.domains.bounded import Bounded, Terms, growth, transposed
from pyspec.formats import FLOAT64, Format
from pyspec.ledger import NUMPY_FLOAT64, Ledger

# The bound is itself computed in float64 with a few roundings per operation; this covers them all.
_OWN_ROUNDING = 1.0 + 2.0**-20
# Past this log-domain width an interval says nothing, and exp would overflow.
_HOPELESS = 300.0
# Extra roundings a kernel may spend on placing the scale: split over query and key (two roots, two
# products), or after the product.
_SCALE_ROUNDINGS = 6
# Sums over queries, which grouped heads continue.
_GRADIENT_SUMS = ("grad_key", "grad_value")


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


class BoundDomain(Domain[Bounded]):
    """The spec over `Bounded` matrices under one ledger."""

    name = "bound"

    def __init__(self, ledger: Ledger = NUMPY_FLOAT64) -> None:
        self.ledger = ledger
        self.compute, self.storage = ledger.compute_format, ledger.storage_format
        self.unit = max(self.compute.unit_roundoff, FLOAT64.unit_roundoff)
        self.tiny = self.compute.tiny
        self._kept: tuple[Bounded, np.ndarray, _Rows] | None = None

    def lift(self, array: np.ndarray) -> Bounded:
        value = np.asarray(array, dtype=np.float64)
        size = np.abs(value)
        lost = size < self.tiny
        # A kernel that flushes subnormal numbers takes those among its inputs for zero.
        if lost.any() and size[lost].any():
            return Bounded(value, np.where(lost, size, 0.0))
        return Bounded(value)

    def lower(self, a: Bounded) -> tuple[np.ndarray, np.ndarray]:
        """Values and errors, the latter with the bound's own rounding covered."""
        return a.value, a.bound * _OWN_ROUNDING

    # roundings

    def _rounded(self, value: np.ndarray, error: np.ndarray, fmt: Format, times: float = 1.0) -> np.ndarray:
        # The kernel's number is within `error` of the exact one, which is within `error` of this value.
        size = np.abs(value) + 2 * error
        error = error + times * (fmt.unit_roundoff * size + fmt.tiny)
        if size.max(initial=0.0) < fmt.largest:
            return error
        # NaN here comes from inf - inf or 0 · inf in the bound: nothing can be promised.
        return np.where(np.isnan(error) | (size >= fmt.largest), np.inf, error)

    def _stored(self, stage: str, value: np.ndarray, error: np.ndarray) -> Bounded:
        if stage in self.ledger.stores:
            error = self._rounded(value, error, self.storage)
        return Bounded(value, error)

    def _elementwise(self, stage: str, value: np.ndarray, error: np.ndarray) -> Bounded:
        error = self._rounded(value, error, self.compute)
        if not error.max(initial=0.0) < np.inf:
            value = np.nan_to_num(value, posinf=0.0, neginf=0.0)
        return self._stored(stage, value, error)

    # products and sums

    def _tile(self, stage: str) -> int | None:
        """Length of the pieces after which a running sum of this product is rounded to storage, or None."""
        if self.ledger.gradient_tile is None:
            return None
        if stage == "grad_query":
            return self.ledger.key_tile
        return self.ledger.gradient_tile if stage in _GRADIENT_SUMS else None

    def _product(self, stage: str, a: Bounded, b: Bounded) -> Bounded:
        """A B, the inner axis summed in any order, in tiles where the ledger says so."""
        count = a.value.shape[-1]
        roundings = count + (_SCALE_ROUNDINGS if stage == "dot" else 0)
        tile = self._tile(stage)
        tiles = 1 if tile is None else max(-(-count // tile), 1)
        storage = self.storage
        with np.errstate(all="ignore"):
            left = a.computed * (roundings * self.unit)
            if tile is not None and tiles > 1:
                # A term is rounded along with the running sum after its own tile and after each later one; the
                # last of these roundings is the cast of the finished tensor.
                left = left + a.computed * growth(storage, tiles - 1 - np.arange(count) // tile)
            if a.error is not None:
                left = left + a.error
            value = a.value @ b.value
            error = left @ b.computed
            if b.error is not None:
                error = error + a.magnitude @ b.error
            if a.slip:
                error = error + a.slip * a.computed.sum(axis=-1, keepdims=True)
            if tiles > 1:
                partial, largest = a.computed @ b.computed, storage.largest
                error = error + (tiles - 1) * storage.tiny
                safe = False
            else:
                # The error is at least roundings·u·Σ|a||b|: where it is small, no partial sum overflows.
                largest = self.compute.largest
                safe = bool(error.max(initial=0.0) < roundings * self.unit * largest)
                partial = error if safe else (a.computed @ b.computed) * (1 + roundings * self.unit)
            error = error + count * self.tiny
            if not safe:
                error[~np.isfinite(value) | ~(partial < largest)] = np.inf
                value = np.nan_to_num(value, posinf=0.0, neginf=0.0)
            if a.unscaled is not None and not self._fits(a.unscaled, b.computed):
                error[~(a.unscaled @ b.computed < self.compute.largest)] = np.inf
        stored = self._stored(stage, value, error)
        if stage not in (*_GRADIENT_SUMS, "dot"):
            return stored
        reach = None
        if stage == "dot":

            def reach() -> np.ndarray:
                return a.computed.sum(axis=-1)[..., None] + b.computed.sum(axis=-2)[..., None, :]

        return Bounded(stored.value, stored.error, lambda: Terms(a.computed @ b.computed, count, tiles), reach)

    def _fits(self, a: np.ndarray, b: np.ndarray) -> bool:
        """Does no entry of A B, nor any partial sum of one, come near the accumulation format's largest number?"""
        most = float(a.max(initial=0.0)) * float(b.max(initial=0.0)) * a.shape[-1]
        return most < self.compute.largest

    def mul(self, stage: str, a: Bounded, b: Bounded) -> Bounded:
        return self._product(stage, a, b)

    def mul_t(self, stage: str, a: Bounded, b: Bounded) -> Bounded:
        return self._product(stage, a, transposed(b))

    def t_mul(self, stage: str, a: Bounded, b: Bounded) -> Bounded:
        return self._product(stage, transposed(a), b)

    def add(self, stage: str, a: Bounded, b: Bounded) -> Bounded:
        with np.errstate(all="ignore"):
            return self._elementwise(stage, a.value + b.value, a.bound + b.bound)

    def hadamard(self, stage: str, a: Bounded, b: Bounded) -> Bounded:
        with np.errstate(all="ignore"):
            # b, the dropout multiplier, need not be a number of the accumulation format.
            error = a.bound * b.computed + a.magnitude * b.bound + self.unit * (a.computed * b.computed)
            product = self._elementwise(stage, a.value * b.value, error)
        return replace(product, reach=lambda: b.computed) if stage == "consumed" else product

    def times(self, stage: str, c: float, a: Bounded) -> Bounded:
        size = abs(c)
        # c itself is rounded to the accumulation format: to zero when it is too small, to infinity when too large.
        rounded = size if size < self.tiny else self.unit * size * (_SCALE_ROUNDINGS if stage == "scaled_grad" else 1)
        with np.errstate(all="ignore"):
            error = a.bound * size + rounded * a.computed
            if a.reach is not None:
                # A scale that goes to the operands first, whole or as two roots, may flush or overflow there.
                reach = a.reach()
                error += self.tiny * max(1.0, math.sqrt(size)) * reach
                if size > 1.0 and a.terms is not None:
                    largest = self.compute.largest
                    error[~(size * np.maximum(reach, a.terms().sizes) < largest)] = np.inf
            if stage == "scaled_grad":
                error += self.tiny * math.sqrt(size)
            if size >= self.compute.largest:
                error = np.full_like(error, np.inf)
            scaled = self._elementwise(stage, a.value * c, error)
        if stage == "scaled_grad":
            # The scale may go to the key or the query instead, whole or as a root, and flush there; or to the
            # finished product, which may have overflowed by then.
            slip = self.tiny / min(size, math.sqrt(size)) if size else 0.0
            return replace(scaled, slip=slip, unscaled=a.computed)
        return scaled

    def take(self, a: Bounded, heads: np.ndarray) -> Bounded:
        if heads.size == a.value.shape[1] == 1:
            return a
        terms = a.terms
        return Bounded(
            a.value[:, heads],
            None if a.error is None else a.error[:, heads],
            None if terms is None else lambda: replace(terms(), sizes=terms().sizes[:, heads]),
        )

    def sum_axis(self, stage: str, a: Bounded, axis: int) -> Bounded:
        parts, storage = a.value.shape[axis], self.storage
        running = self.ledger.running_sums_stored
        unit = storage.unit_roundoff if running else self.unit
        tiny = storage.tiny if running else self.tiny
        with np.errstate(all="ignore"):
            inner = Terms(a.computed, 1, 1) if a.terms is None else a.terms()
            sizes = a.computed.sum(axis=axis, keepdims=True)
            all_sizes = sizes if a.terms is None else inner.sizes.sum(axis=axis, keepdims=True)
            error = (a.bound + tiny).sum(axis=axis, keepdims=True) + parts * unit * sizes
            if a.terms is not None and parts > 1:
                # A kernel may as well run one sum through all parts: longer, and rounded after the others' tiles.
                longer = (parts - 1) * inner.count * self.unit
                if self.ledger.gradient_tile is not None and stage in _GRADIENT_SUMS:
                    longer += float(growth(storage, parts * inner.tiles) - growth(storage, inner.tiles))
                error = error + longer * all_sizes
            total = a.value.sum(axis=axis, keepdims=True)
            # A running sum may pass the format's largest number although the total does not.
            error = np.where(all_sizes < storage.largest, error, np.inf)
        stored = self._stored(stage, np.nan_to_num(total), error)
        return replace(stored, terms=lambda: Terms(all_sizes, parts * inner.count, parts * inner.tiles))

    def settle(self, stage: str, a: Bounded) -> Bounded:
        return self._stored(stage, a.value, a.bound)

    def stack_heads(self, parts: list[Bounded]) -> Bounded:
        if len(parts) == 1:
            return parts[0]
        value = np.concatenate([p.value for p in parts], axis=1)
        return Bounded(value, np.concatenate([p.bound for p in parts], axis=1))

    def cut(self, a: Bounded, axis: int, start: int, stop: int) -> Bounded:
        at = (slice(None),) * axis + (slice(start, stop),)
        return Bounded(a.value[at], None if a.error is None else a.error[at])

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
        """Relative error of a computed tanh besides its argument's; this module's own tanh is within 4 of float64."""
        stored = self.storage.unit_roundoff if "capped" in self.ledger.stores else 0.0
        return self.ledger.tanh_error * self.unit + 4 * FLOAT64.unit_roundoff + stored

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
        product = self._product("output", self.backward_consumed(consumed), value)
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

    def backward_consumed(self, consumed: Bounded) -> Bounded:
        return self._stored_visible("consumed", consumed.computed > 0, consumed.value, consumed.bound)

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
