"""Simpler calls: candidates that reset one field, and the order in which numbers count as simpler."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from attnspec.pyspec.calls.call import MASK_ENCODINGS, AttentionCall, Dropout, Layout
from attnspec.pyspec.calls.cut import compact
from attnspec.pyspec.calls.features import BY_PATH, FEATURES, Feature, arrays
from attnspec.pyspec.calls.formats import round_to

Build = Callable[[], AttentionCall]


# Values that are simpler than all others of their part, simplest first.
_SIMPLER: dict[str, tuple[Any, ...]] = {
    "encoding": MASK_ENCODINGS,
    "softcap": (1.0,),
    "scale": (1.0,),
    "layout.query": ("contiguous",),
    "layout.key": ("contiguous",),
    "layout.value": ("contiguous",),
    "layout.mask": ("contiguous",),
}


def resets(call: AttentionCall) -> Iterator[Build]:
    """Candidates that say less, the boldest first: without a feature, then with simpler ones.

    Building one may raise CallError.
    """
    for feature in reversed(FEATURES):
        if feature.optional and feature.of(call):
            yield from _without(call, feature)
    mask = call.visibility.mask
    valid = call.visibility.query_valid
    if valid is not None or mask.size > 1 or not mask.all():
        everything = {"visibility.mask": np.ones((1, 1, 1, 1), dtype=bool), "visibility.query_valid": None}
        for encoding in MASK_ENCODINGS:
            yield partial(call.with_parts, {**everything, "encoding": encoding})
    if valid is not None:
        yield lambda: call.with_parts({"visibility.mask": compact(call.visible), "visibility.query_valid": None})
    # Not the dropout's multiplier: one that drops all keys at length 1 could keep none of them again.
    for part, array in arrays(call, "bits", "numbers"):
        small = compact(array, [at for at, axis in enumerate(part.axes) if axis in part.shared])
        if small.size < array.size:
            yield partial(call.with_parts, {part.path: small})
    if call.layout != Layout():
        yield lambda: call.but(layout=Layout())
    for path, simpler in _SIMPLER.items():
        now = BY_PATH[path].of(call)
        if now is not None:
            for value in simpler[: simpler.index(now)] if now in simpler else simpler:
                yield partial(call.with_parts, {path: value})


def _without(call: AttentionCall, feature: Feature) -> Iterator[Build]:
    """The call without a feature; where that lets the mask be encoded in simpler ways, in each of them."""
    absent = {feature.optional: feature.absent}
    encodings = MASK_ENCODINGS if feature.name == "bias" else (call.encoding,)
    for encoding in encodings:
        yield partial(call.with_parts, {**absent, "encoding": encoding})
    drop = call.dropout
    if feature.name == "dropout" and drop is not None and (drop.probability or drop.multiplier.size > 1):
        yield lambda: call.but(dropout=Dropout(0.0, np.ones((1, 1, 1, 1))))


def rank(x: float) -> tuple[int, float, int]:
    """How simple a number is: 0, then 1, then integers by size, then others by bits of their significand."""
    if x in (0.0, 1.0):
        return (int(x), 0.0, 0)
    if x == int(x) and abs(x) < 2**20:
        return (2, abs(x), int(x < 0))
    return (3, float(_bits(x)), int(x < 0))


def _bits(x: float) -> int:
    numerator, _ = abs(x).as_integer_ratio()
    return (numerator // (numerator & -numerator)).bit_length()


def simpler_numbers(x: float, dtype: str) -> list[float]:
    """Numbers of the dtype near x, or of its sign turned, that are simpler than x; simplest first."""
    near = [abs(x), float(np.copysign(1, x)), float(np.rint(x)), *(_cut(x, bits) for bits in (1, 2, 3, 5, 8))]
    # Integers by bisection: half of it, three quarters, ..., one less.
    steps = [2.0**n for n in range(max(0, int(np.frexp(x)[1])), -1, -1)] if abs(x) < 2**20 else []
    near += [float(np.rint(x)) - float(np.copysign(step, x)) for step in steps]
    representable = {y + 0.0 for y in near if float(round_to(dtype, np.array(y))) == y and rank(y) < rank(x)}
    return sorted(representable, key=rank)


def _cut(x: float, bits: int) -> float:
    """x rounded to so many significant bits."""
    mantissa, exponent = np.frexp(x)
    return float(np.ldexp(np.rint(mantissa * 2.0**bits), int(exponent) - bits))
