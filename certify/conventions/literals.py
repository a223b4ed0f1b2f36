"""Arrays as Python source: an expression that makes the same array again, bit for bit, in torch or in numpy."""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np

INLINE = 600
CONSTANT = 8


def number_literal(x: float, library: str) -> str:
    """A Python expression for one number, exact; `library` ("torch" or "np") lends its names for inf and nan."""
    if math.isnan(x):
        return f"{library}.nan"
    if math.isinf(x):
        return f"{library}.inf" if x > 0 else f"-{library}.inf"
    if x == int(x) and abs(x) < 1e6 and not (x == 0 and math.copysign(1.0, x) < 0):
        return str(int(x))
    return repr(float(x))


def array_literal(array: np.ndarray, library: str) -> str:
    """An expression in torch ("torch") or numpy ("np") for an array in its own number type.

    Numbers are written out for up to 600 entries, once where all are the same, and as bytes beyond. NaN is taken to
    be the one that Python writes: see `stored`.
    """
    kind, shape = _kind(array.dtype, library), list(array.shape)
    if array.size == 0:
        return f"{library}.zeros({shape}, dtype={kind})"
    if array.size > CONSTANT and _constant(array):
        return f"{library}.full({shape}, {_entry(array.flat[0], library)}, dtype={kind})"
    if array.size <= INLINE:
        maker = "torch.tensor" if library == "torch" else "np.array"
        return f"{maker}({_nested(array, library)}, dtype={kind})"
    # bytearray: a tensor over memory that cannot be written to warns.
    data = f"{library}.frombuffer(bytearray({_bytes(array)}), dtype={kind}).reshape({shape})"
    return f"{data}.clone()" if library == "torch" else data


def stored(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A copy of finite values in that number type, which holds them exactly."""
    return values.astype(dtype, order="C")


def stored_raw(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A copy of any values in that number type, rounded to nearest, every NaN the one that Python writes."""
    with np.errstate(all="ignore"):
        made = values.astype(dtype, order="C")
        if dtype.kind in "fV":  # V: bfloat16, which numpy does not know
            made[np.isnan(made)] = np.nan
    return made


def _kind(dtype: np.dtype, library: str) -> str:
    if library == "torch":
        return f"torch.{dtype.name}"
    if dtype.name == "bfloat16":
        return "ml_dtypes.bfloat16"
    return "bool" if dtype == np.bool_ else f"np.{dtype.name}"


def _constant(array: np.ndarray) -> bool:
    """Are all entries the same, bit for bit?"""
    words = np.ascontiguousarray(array).reshape(-1).view(f"u{array.dtype.itemsize}")
    return bool((words == words[0]).all())


def _entry(x: Any, library: str) -> str:
    return number_literal(float(x), library)


def _nested(array: np.ndarray, library: str) -> str:
    if array.ndim == 0:
        return _entry(array[()], library)
    return "[" + ", ".join(_nested(x, library) for x in array) + "]"


def _bytes(array: np.ndarray) -> str:
    data = np.ascontiguousarray(array).tobytes()
    packed = zlib.compress(data, 9)
    if len(packed) < 0.8 * len(data):
        return f"zlib.decompress(bytes.fromhex('{packed.hex()}'))"
    return f"bytes.fromhex('{data.hex()}')"
