"""Bounds of linear algebra: roundings, products, sums and scalings of `Bounded` matrices under one ledger."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from attnspec.pyspec.calls.formats import FLOAT64, Format
from attnspec.pyspec.domain import Domain
from attnspec.pyspec.oracle.bounded import Bounded, Terms, growth, transposed
from attnspec.pyspec.oracle.ledger import NUMPY_FLOAT64, Ledger

# The bound is itself computed in float64 with a few roundings per operation; this covers them all.
_OWN_ROUNDING = 1.0 + 2.0**-20
# Extra roundings a kernel may spend on placing the scale: split over query and key (two roots, two
# products), or after the product.
_SCALE_ROUNDINGS = 6
# Roundings of a kernel that multiplies a slope by a position, all of numbers as large as the largest position makes
# them: the product, the slope over the scale and the scale again, two additions to scores, and the log-sum-exp.
_STEP_ROUNDINGS = 6
# And in storage, where products are kept there: the position itself, the product and the two additions.
_STORED_STEP_ROUNDINGS = 4
# Sums over queries, which grouped heads continue.
_GRADIENT_SUMS = ("grad_key", "grad_value")


class LinearBounds(Domain[Bounded]):
    """The linear half of the bound domain; `BoundDomain` adds what is not linear."""

    def __init__(self, ledger: Ledger = NUMPY_FLOAT64) -> None:
        self.ledger = ledger
        self.compute, self.storage = ledger.compute_format, ledger.storage_format
        self.unit = max(self.compute.unit_roundoff, FLOAT64.unit_roundoff)
        self.tiny = self.compute.tiny

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

    def add_up(self, stage: str, parts: list[Bounded]) -> Bounded:
        before = len(parts) - 2
        if before < 1:
            return super().add_up(stage, parts)
        with np.errstate(all="ignore"):
            sizes = sum((p.computed for p in parts[1:]), parts[0].computed)
            # Every partial sum but the last, which may be of any of the parts and then exceed the whole.
            error = sum((p.bound for p in parts[1:]), parts[0].bound)
            for fmt in (self.compute, *([self.storage] if stage in self.ledger.stores else [])):
                error = error + growth(fmt, before) * sizes + before * fmt.tiny
                error = np.where(sizes < fmt.largest, error, np.inf)
            return self._elementwise(stage, sum((p.value for p in parts[1:]), parts[0].value), error)

    def along(
        self, stage: str, a: Bounded, steps: np.ndarray, reach: np.ndarray, summed: tuple[int, ...] = ()
    ) -> Bounded:
        with np.errstate(all="ignore"):
            far = a.computed * reach
            error = a.bound * reach + _STEP_ROUNDINGS * self.unit * far
            if summed:
                # `sum_axis` charges for numbers of this size; those of a kernel that counts from afar are larger.
                running = sum(summed) * self.storage.unit_roundoff if self.ledger.running_sums_stored else 0.0
                error = error + (math.prod(summed) * self.unit + running) * (far - a.magnitude * np.abs(steps))
            largest = self.compute.largest
            if stage in self.ledger.stores:
                error = error + _STORED_STEP_ROUNDINGS * self.storage.unit_roundoff * far
                largest = min(largest, self.storage.largest)
            return self._elementwise(stage, a.value * steps, np.where(far < largest, error, np.inf))

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

    def shape(self, a: Bounded) -> tuple[int, ...]:
        return a.value.shape

    def reshape(self, a: Bounded, shape: tuple[int, ...]) -> Bounded:
        return Bounded(a.value.reshape(shape), None if a.error is None else a.error.reshape(shape))

    def cut(self, a: Bounded, axis: int, start: int, stop: int) -> Bounded:
        at = (slice(None),) * axis + (slice(start, stop),)
        return Bounded(a.value[at], None if a.error is None else a.error[at])
