"""Floating-point formats as data: unit roundoff, range, rounding and bit patterns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np


@dataclass(frozen=True)
class Format:
    """A binary floating-point storage format.

    `precision` counts significand bits with the hidden one; `tiny` is the absolute slack charged for one
    rounding near zero: the spacing of subnormals where hardware keeps them (float16 conversions always do),
    the smallest normal where it may flush them to zero.
    """

    name: str
    precision: int
    largest: float
    tiny: float
    dtype: np.dtype
    bits: np.dtype

    @property
    def unit_roundoff(self) -> float:
        """Largest relative error of one rounding to nearest: 2^-precision."""
        return 2.0**-self.precision


def _format(name: str, dtype: Any, precision: int, bits: Any, *, gradual: bool = False) -> Format:
    info: Any = ml_dtypes.finfo(dtype) if name == "bfloat16" else np.finfo(dtype)
    tiny = float(info.smallest_subnormal if gradual else info.smallest_normal)
    return Format(name, precision, float(info.max), tiny, np.dtype(dtype), np.dtype(bits))


FLOAT64 = _format("float64", np.float64, 53, np.uint64)
FLOAT32 = _format("float32", np.float32, 24, np.uint32)
BFLOAT16 = _format("bfloat16", ml_dtypes.bfloat16, 8, np.uint16)
FLOAT16 = _format("float16", np.float16, 11, np.uint16, gradual=True)

FORMATS: dict[str, Format] = {f.name: f for f in (FLOAT64, FLOAT32, BFLOAT16, FLOAT16)}


def get_format(name: str) -> Format:
    """The format of that name; a ValueError lists the known ones."""
    if name not in FORMATS:
        raise ValueError(f"unknown dtype {name!r}: expected one of {', '.join(FORMATS)}")
    return FORMATS[name]


def round_to(name: str, values: np.ndarray) -> np.ndarray:
    """Round float64 values to the nearest value of the format (ties to even), returned as float64."""
    fmt = get_format(name)
    values = np.asarray(values, dtype=np.float64)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if fmt is not BFLOAT16:
            return values.astype(fmt.dtype).astype(np.float64)
        # The cast of ml_dtypes goes through float32 and so rounds twice: round to a multiple of the last place.
        _, exponent = np.frexp(values)
        place = np.ldexp(1.0, np.maximum(exponent - fmt.precision, -133))
        rounded = np.rint(values / place) * place
        return np.where(np.abs(rounded) > fmt.largest, np.copysign(np.inf, values), rounded)


def is_representable(name: str, values: np.ndarray) -> np.ndarray:
    """Elementwise: is this float64 value exactly a value of the format?"""
    return (round_to(name, values) == values) | np.isnan(values)


def to_hex(name: str, values: np.ndarray) -> list[str]:
    """Bit patterns of the values in the format, as fixed-width hex words in row-major order."""
    fmt = get_format(name)
    words = np.ascontiguousarray(np.asarray(values, dtype=np.float64).astype(fmt.dtype)).view(fmt.bits).ravel()
    width = 2 * fmt.bits.itemsize
    return [f"{int(word):0{width}x}" for word in words]


def from_hex(name: str, words: list[str], shape: tuple[int, ...]) -> np.ndarray:
    """Inverse of `to_hex`: float64 values of that shape. Bad words raise a ValueError that names them."""
    fmt = get_format(name)
    width = 2 * fmt.bits.itemsize
    for word in words:
        if len(word) != width or any(c not in "0123456789abcdef" for c in word):
            raise ValueError(f"bad {name} bit pattern {word!r}: expected {width} lower-case hex digits")
    if len(words) != math.prod(shape):
        raise ValueError(f"{len(words)} bit patterns for shape {list(shape)}: expected {math.prod(shape)}")
    bits = np.array([int(word, 16) for word in words], dtype=fmt.bits)
    with np.errstate(invalid="ignore"):  # signalling NaN
        return bits.view(fmt.dtype).astype(np.float64).reshape(shape)
