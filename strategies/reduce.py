"""The reducer: from a failing call to a small one that still fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from attnspec.pyspec.calls.call import AttentionCall, CallError
from attnspec.pyspec.calls.cut import share_key_head, take, take_heads
from attnspec.pyspec.calls.features import BY_PATH, PARTS, Part
from attnspec.strategies.simpler import Build, resets, simpler_numbers
from attnspec.strategies.values import fit

Fails = Callable[[AttentionCall], bool]
# Lengths that a subject, or a bug, may need equal are shortened together as well.
_SHORTENED = (
    ("batch",),
    ("queries",),
    ("keys",),
    ("queries", "keys"),
    ("key_width",),
    ("value_width",),
    ("key_width", "value_width"),
)
# Numbers that may be made simpler: first those of the tensors that every call has.
_NUMBERS = tuple(part for part in PARTS if part.kind == "numbers")


def reduce_call(call: AttentionCall, fails: Fails, budget: int = 2000) -> AttentionCall:
    """A small call that still fails, found greedily with at most `budget` runs of `fails`. Deterministic.

    Drops sink, softcap, gradient, dropout, bias, mask, scale, encoding and layout where it can, then batches, heads,
    queries, keys and widths, then hidden keys, then turns numbers into 0, 1, small integers or short fractions, and
    starts over until nothing more goes. What is left is 1-minimal if the budget lasted: no position of an axis can go
    (no axis is emptied), and no single number can become 0. The dtype is kept.
    A candidate that breaks the contract of a call is passed over. Raises ValueError when `call` itself does not fail.
    """
    if budget < 1:
        raise ValueError(f"budget = {budget!r}: expected at least 1 run of the predicate")
    reducer = _Reducer(call, fails, budget)
    if not reducer.check(call):
        raise ValueError("the call to reduce does not fail: nothing to reduce")
    with suppress(_BudgetSpent):
        reducer.run()
    return reducer.call


class _BudgetSpent(Exception):
    """The predicate has run as often as allowed."""


class _Reducer:
    """The smallest failing call so far, and what may still be spent."""

    def __init__(self, call: AttentionCall, fails: Fails, budget: int) -> None:
        self.call = call
        self.fails = fails
        self.left = budget

    def check(self, candidate: AttentionCall) -> bool:
        """Does the candidate fail? Counts against the budget."""
        if self.left == 0:
            raise _BudgetSpent
        self.left -= 1
        try:
            return self.fails(candidate)
        except CallError:
            return False

    def accept(self, build: Build) -> bool:
        """Take the candidate if it is a call and fails."""
        try:
            candidate = build()
        except CallError:
            return False
        if not self.check(candidate):
            return False
        self.call = candidate
        return True

    def run(self) -> None:
        """Reduce until a whole round changes nothing."""
        before = None
        while before is not self.call:
            before = self.call
            self.reset_fields()
            for axes in _SHORTENED:
                self.shorten(*axes)
            self.drop_heads()
            self.reset_fields()
            self.show_keys()
            self.keep_weights()
            for part in _NUMBERS:
                self.simplify(part)

    def reset_fields(self) -> None:
        """Reset fields, again from the boldest after each success."""
        while any(self.accept(build) for build in resets(self.call)):
            pass

    def shorten(self, *axes: str) -> None:
        """Delete runs of positions, the same on each axis, halving their length; single ones until none can go."""
        size = max(1, self._length(axes) // 2)
        while True:
            shorter = self._delete_runs(axes, size)
            if size > 1:
                size //= 2
            elif not shorter:
                return

    def _length(self, axes: tuple[str, ...]) -> int:
        return min(getattr(self.call.axes, axis) for axis in axes)

    def _delete_runs(self, axes: tuple[str, ...], size: int) -> bool:
        start, shorter = 0, False
        while start < (n := self._length(axes)):
            # A run is never the whole axis: no axis is emptied.
            if min(start + size, n) - start < n and self.accept(partial(self._without, axes, start, start + size)):
                shorter = True
            else:
                start += size
        return shorter

    def _without(self, axes: tuple[str, ...], start: int, stop: int) -> AttentionCall:
        call = self.call
        for axis in axes:
            call = take(call, axis, [i for i in range(getattr(call.axes, axis)) if not start <= i < stop])
        return call

    def drop_heads(self) -> None:
        """Drop heads so that equal groups stay equal where they can, then one by one."""
        while any(self.accept(build) for build in self._fewer_heads()):
            pass

    def _fewer_heads(self) -> Iterator[Build]:
        call = self.call
        hq, hkv = call.axes.query_heads, call.axes.key_heads
        used = sorted(set(call.head_map))
        groups = [[h for h in range(hq) if call.head_map[h] == g] for g in used]
        choices = [[h] for h in range(hq)]
        choices += groups
        choices += [sorted(h for g in groups for h in g[:n]) for n in range(1, max(map(len, groups), default=1))]
        choices += [[h for h in range(hq) if h not in g] for g in groups]
        choices += [[h for h in range(hq) if h != gone] for gone in range(hq)]
        if hkv > 1:
            yield from (partial(share_key_head, call, g) for g in used)
        if len(used) < hkv:
            yield lambda: take(call, "key_heads", used)
        for heads in choices:
            if 0 < len(heads) < hq:
                yield partial(take_heads, call, heads)
        # Keeping key heads that nobody reads any more, and dropping unread ones one at a time, in case they matter.
        for gone in range(hq if hq > 1 else 0):
            yield partial(take, call, "query_heads", [h for h in range(hq) if h != gone])
        for gone in range(hkv if hkv > 1 else 0):
            if gone not in used:
                yield partial(take, call, "key_heads", [g for g in range(hkv) if g != gone])

    def show_keys(self) -> None:
        """Make hidden entries of the mask visible, and invalid queries valid."""

        for path in ("visibility.mask", "visibility.query_valid"):
            bits = BY_PATH[path].of(self.call)
            if bits is not None:
                self.sweep(np.flatnonzero(~bits).tolist(), partial(self._filled, path, value=True))

    def _filled(self, path: str, at: list[int], value: Any) -> AttentionCall:
        """The call with these entries of an array set to a value, or to one value each."""
        array = BY_PATH[path].of(self.call).copy()
        array.flat[at] = value
        return self.call.with_parts({path: array})

    def keep_weights(self) -> None:
        """Let the dropout keep what it dropped."""
        if self.call.dropout is None:
            return

        kept = 1.0 / (1.0 - self.call.dropout.probability)
        lost = np.flatnonzero(self.call.dropout.multiplier == 0).tolist()
        self.sweep(lost, lambda at: self._filled("dropout.multiplier", at, kept))

    def simplify(self, part: Part) -> None:
        """Turn the numbers of one tensor into 0, else 1, else an integer, else one with fewer digits."""
        if part.of(self.call) is None:
            return

        def numbers() -> np.ndarray:
            array: np.ndarray = part.of(self.call)
            return array

        def replaced(at: list[int], new: np.ndarray) -> AttentionCall:
            return self._filled(part.path, at, new)

        self.sweep(np.flatnonzero(numbers()).tolist(), lambda at: replaced(at, np.zeros(len(at))))
        others = np.flatnonzero((numbers() != 0) & (numbers() != 1)).tolist()
        self.sweep(others, lambda at: replaced(at, np.ones(len(at))))
        broken = np.flatnonzero(numbers() != np.rint(numbers())).tolist()
        self.sweep(broken, lambda at: replaced(at, fit(self.call.dtype, np.rint(numbers().flat[at]) + 0.0)))
        for at in np.flatnonzero((numbers() != 0) & (numbers() != 1)).tolist():
            self._simplify_one(at, numbers, replaced)

    def _simplify_one(
        self, at: int, numbers: Callable[[], np.ndarray], replaced: Callable[[list[int], np.ndarray], AttentionCall]
    ) -> None:
        def lower() -> Iterator[Build]:
            for y in simpler_numbers(float(numbers().flat[at]), self.call.dtype):
                yield partial(replaced, [at], np.array([y]))

        while any(self.accept(build) for build in lower()):
            pass

    def sweep(self, positions: list[int], change: Callable[[list[int]], AttentionCall]) -> None:
        """Apply a change to all positions at once, else to halves, and so on down to single ones."""
        size = len(positions)
        while positions and size:
            start = 0
            while start < len(positions):
                part = positions[start : start + size]
                if self.accept(partial(change, part)):
                    del positions[start : start + size]
                else:
                    start += size
            size //= 2
