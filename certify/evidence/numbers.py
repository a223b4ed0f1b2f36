"""Numbers as evidence: decimal for reading, hex for certainty, and ratios that JSON can carry."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np

from attnspec.pyspec.calls.formats import get_format, to_hex

INFINITE = "infinite"

# A ratio in a file: a finite number, the word "infinite", or null where nothing was judged.
Ratio = float | str | None


def ratio_out(value: float | None) -> Ratio:
    """A ratio as JSON may carry it: never NaN, never Infinity."""
    if value is None:
        return None
    value = float(value)
    return value if math.isfinite(value) else INFINITE


def ratio_in(value: Ratio) -> float:
    """The ratio behind its written form; 0 where nothing was judged."""
    if value is None:
        return 0.0
    return math.inf if isinstance(value, str) else float(value)


def ratio_text(value: Ratio) -> str:
    """A ratio for reading, rounded away from one: what held never reads as if it had not, and the other way round."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return "∞"
    if value >= 1000:
        return f"{value:.3g}"
    return f"{(math.ceil if value > 1 else math.floor)(value * 1000) / 1000:.3f}"


def decimal(value: float) -> str:
    """Shortest decimal that reads back as the same float64."""
    return repr(float(value))


def hex_word(dtype: str, value: float) -> str:
    """The bit pattern of a value in a format, such as 0x3f80 for 1 in bfloat16."""
    with np.errstate(all="ignore"):
        return "0x" + to_hex(dtype, np.array([value], dtype=np.float64))[0]


def ulps(dtype: str, distance: float, at: float) -> float | None:
    """A distance in units in the last place of the format at that magnitude; None when it is not finite."""
    if not (math.isfinite(distance) and math.isfinite(at)):
        return None
    fmt = get_format(dtype)
    _, exponent = math.frexp(at) if at else (0.0, -2000)
    smallest = float(ml_dtypes.finfo(fmt.dtype).smallest_subnormal)
    return distance / max(math.ldexp(1.0, exponent - fmt.precision), smallest)
