"""Simpler calls: candidates that reset one field, and the order in which numbers count as simpler."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from attnspec.pyspec.calls.call import MASK_ENCODINGS, AttentionCall, Dropout, Layout, Scale, Visibility
from attnspec.pyspec.calls.formats import round_to

Build = Callable[[], AttentionCall]


def resets(call: AttentionCall) -> Iterator[Build]:
    """Candidates with one field reset to something simpler, the boldest first. Building one may raise CallError."""
    v = call.visibility
    if call.sink is not None:
        yield lambda: call.but(sink=None)
    if call.softcap is not None:
        yield lambda: call.but(softcap=None)
    if call.grad_output is not None:
        yield lambda: call.but(grad_output=None)
    if call.dropout is not None:
        yield lambda: call.but(dropout=None)
        plain = Dropout(0.0, np.ones((1, 1, 1, 1)))
        if call.dropout.probability or call.dropout.multiplier.size > 1:
            yield lambda: call.but(dropout=plain)
    if call.bias is not None:
        yield from _encoded(call, bias=None)
    if v.query_valid is not None or v.mask.size > 1 or not v.mask.all():
        yield from _encoded(call, visibility=Visibility(np.ones((1, 1, 1, 1), dtype=bool), None, v.empty_rows))
    if v.query_valid is not None:
        yield lambda: call.but(visibility=Visibility(v.mask, None, v.empty_rows))
        yield lambda: call.but(visibility=Visibility(compact(call.visible), None, v.empty_rows))
    if compact(v.mask).size < v.mask.size:
        yield lambda: call.but(visibility=Visibility(compact(v.mask), v.query_valid, v.empty_rows))
    if call.bias is not None and compact(call.bias).size < call.bias.size:
        small_bias = compact(call.bias)
        yield lambda: call.but(bias=small_bias)
    for encoding in MASK_ENCODINGS[: MASK_ENCODINGS.index(call.encoding)]:
        yield partial(call.but, encoding=encoding)
    if call.softcap not in (None, 1.0):
        yield lambda: call.but(softcap=1.0)
    for scale in _simpler_scales(call.scale):
        yield partial(call.but, scale=scale)
    if call.layout != Layout():
        yield lambda: call.but(layout=Layout())
        for name in ("query", "key", "value", "mask"):
            if getattr(call.layout, name) != "contiguous":
                changed = {n: getattr(call.layout, n) for n in ("query", "key", "value", "mask")}
                yield partial(call.but, layout=Layout(**{**changed, name: "contiguous"}))


def _encoded(call: AttentionCall, **changes: Any) -> Iterator[Build]:
    """One candidate for each encoding, simplest first."""
    for encoding in MASK_ENCODINGS:
        yield partial(call.but, encoding=encoding, **changes)


def _simpler_scales(scale: Scale) -> Iterator[Scale]:
    ladder = (Scale(), Scale(1.0), Scale(scale.value))
    yield from ladder[: ladder.index(scale) if scale in ladder else len(ladder)]


def compact(array: np.ndarray) -> np.ndarray:
    """The array with length 1 along every axis on which it does not vary."""
    for axis in range(array.ndim):
        first = np.take(array, [0], axis=axis) if array.shape[axis] > 1 else array
        if array.shape[axis] > 1 and bool((array == first).all()):
            array = first
    return np.ascontiguousarray(array)


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
