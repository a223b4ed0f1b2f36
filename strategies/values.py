"""Values: joint profiles over (query, key, value), simplest first. Every value is finite and of the dtype."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from attnspec.pyspec.calls.call import Axes
from attnspec.pyspec.calls.formats import Format, get_format, round_to
from attnspec.strategies.chooser import one_of, weighted

Triple = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True)
class _Site:
    """What a profile may look at: the sizes, the format, and the scale in force."""

    axes: Axes
    fmt: Format
    scale: float

    @property
    def query(self) -> tuple[int, int, int, int]:
        return (self.axes.batch, self.axes.query_heads, self.axes.queries, self.axes.key_width)

    @property
    def key(self) -> tuple[int, int, int, int]:
        return (self.axes.batch, self.axes.key_heads, self.axes.keys, self.axes.key_width)

    @property
    def value(self) -> tuple[int, int, int, int]:
        return (self.axes.batch, self.axes.key_heads, self.axes.keys, self.axes.value_width)

    @property
    def per_logit(self) -> float:
        """Product query·key (all widths together) that makes a logit of 1; 1 when the scale is zero."""
        return 1.0 / self.scale if self.scale else 1.0


_Profile = Callable[[np.random.Generator, _Site], Triple]
_Shape = tuple[int, ...]


def _integers(rng: np.random.Generator, low: int, high: int, shape: _Shape) -> np.ndarray:
    return rng.integers(low, high + 1, size=shape).astype(np.float64)


def _zeros(rng: np.random.Generator, s: _Site) -> Triple:
    return np.zeros(s.query), np.zeros(s.key), np.zeros(s.value)


def _ones(rng: np.random.Generator, s: _Site) -> Triple:
    return np.ones(s.query), np.ones(s.key), np.ones(s.value)


def _unit(rng: np.random.Generator, s: _Site) -> Triple:
    return _integers(rng, 0, 1, s.query), _integers(rng, 0, 1, s.key), _integers(rng, 0, 1, s.value)


def _small_integers(rng: np.random.Generator, s: _Site) -> Triple:
    return _integers(rng, -3, 3, s.query), _integers(rng, -3, 3, s.key), _integers(rng, -3, 3, s.value)


def _ties(rng: np.random.Generator, s: _Site) -> Triple:
    """Keys repeat a few distinct rows, so that logits tie exactly; values do not repeat."""
    b, h, k, d = s.key
    distinct = _integers(rng, -2, 2, (b, h, 3, d))
    key = distinct[:, :, rng.integers(0, 3, size=k)]
    return _integers(rng, -2, 2, s.query), key, rng.standard_normal(s.value)


def _onehot_logits(rng: np.random.Generator, s: _Site) -> Triple:
    """One key of each head stands apart from all others by 20 to 300 in the logits."""
    b, h, k, d = s.key
    side = -np.ones((b, h, k, 1))
    if k:
        np.put_along_axis(side, rng.integers(0, k, size=(b, h, 1, 1)), 1.0, axis=2)
    gap = rng.uniform(20, 300) * s.per_logit / (2 * max(d, 1))
    root = np.sqrt(abs(gap))
    return np.full(s.query, root * np.sign(gap)), np.broadcast_to(side * root, s.key), rng.standard_normal(s.value)


def _large_logits(rng: np.random.Generator, s: _Site) -> Triple:
    """Logits of both signs, of a size drawn from 100 to 10,000 (to 1,000 in float16)."""
    size = 10.0 ** rng.uniform(2, 3 if s.fmt.name == "float16" else 4)
    root = np.sqrt(size * abs(s.per_logit) / np.sqrt(max(s.axes.key_width, 1)))
    return (
        root * rng.standard_normal(s.query),
        root * rng.standard_normal(s.key),
        rng.standard_normal(s.value),
    )


def _low_logits(rng: np.random.Generator, s: _Site) -> Triple:
    """Every logit lies below -95, so that exp of the LSE itself underflows in float32.

    In one of four, except in float16, every logit lies below -60,000: beneath any finite stand-in for -inf that a
    kernel may start its maximum from.
    """
    far = rng.integers(4) == 0 and s.fmt.name != "float16"
    base = rng.uniform(65_000, 90_000) if far else rng.uniform(105, 400)
    base *= abs(s.per_logit) / max(s.axes.key_width, 1)
    root = np.sqrt(base)
    query = root * rng.uniform(1.0, 1.1, size=s.query)
    key = -np.copysign(root, s.per_logit) * rng.uniform(1.0, 1.1, size=s.key)
    return query, key, rng.standard_normal(s.value)


def _qk_cancellation(rng: np.random.Generator, s: _Site) -> Triple:
    """Terms of query·key of about a hundred cancel to logits of about one (widths of at least 2)."""
    query, key = rng.standard_normal(s.query), rng.standard_normal(s.key)
    half = s.axes.key_width // 2
    query[..., half : 2 * half] = query[..., :half]
    key[..., :half] *= 100
    key[..., half : 2 * half] -= key[..., :half]
    return query, key, rng.standard_normal(s.value)


def _pv_cancellation(rng: np.random.Generator, s: _Site) -> Triple:
    """Nearly equal weights over values of about a hundred whose sum is about one."""
    value = rng.standard_normal(s.value)
    half = s.axes.keys // 2
    value[..., :half, :] *= 100
    value[..., half : 2 * half, :] -= value[..., :half, :]
    return 0.01 * rng.standard_normal(s.query), rng.standard_normal(s.key), value


def _subnormal(rng: np.random.Generator, s: _Site) -> Triple:
    """One or all of the tensors hold numbers around the smallest normal one."""
    low = float(ml_dtypes.finfo(s.fmt.dtype).smallest_normal)
    parts = [rng.standard_normal(s.query), rng.standard_normal(s.key), rng.standard_normal(s.value)]
    which = int(rng.integers(4))
    for n in range(3):
        if which in (n, 3):
            parts[n] = parts[n] * low * 2.0 ** rng.integers(-6, 2)
    return parts[0], parts[1], parts[2]


def _huge_value(rng: np.random.Generator, s: _Site) -> Triple:
    """Values near the format's largest, or near the largest whose sum over all keys is finite."""
    top = s.fmt.largest * (0.95 if rng.integers(2) else 0.25 / max(s.axes.keys, 1))
    value = np.copysign(rng.uniform(0.5, 1.0, size=s.value) * top, rng.standard_normal(s.value))
    return rng.standard_normal(s.query), rng.standard_normal(s.key), value


def _constant_rows(rng: np.random.Generator, s: _Site) -> Triple:
    """Each row of each tensor is one number repeated."""
    q, k, v = (np.broadcast_to(rng.standard_normal((*x[:3], 1)), x) for x in (s.query, s.key, s.value))
    return q, k, v


def _outliers(rng: np.random.Generator, s: _Site) -> Triple:
    """Gaussian with a few entries 100 times as large."""
    q, k, v = (rng.standard_normal(x) * np.where(rng.random(x) < 0.02, 100.0, 1.0) for x in (s.query, s.key, s.value))
    return q, k, v


def _positive(rng: np.random.Generator, s: _Site) -> Triple:
    """Nearly equal weights over values between 1 and 2: long sums in which nothing cancels."""
    return 0.1 * rng.standard_normal(s.query), rng.standard_normal(s.key), rng.uniform(1, 2, size=s.value)


def _counting(rng: np.random.Generator, s: _Site) -> Triple:
    """Query zero, value 1 where key mod width is the column: the output counts the visible keys exactly."""
    hit = np.arange(s.axes.keys)[:, None] % max(s.axes.value_width, 1) == np.arange(s.axes.value_width)
    return np.zeros(s.query), _integers(rng, -3, 3, s.key), np.broadcast_to(hit.astype(np.float64), s.value)


def _gaussian(rng: np.random.Generator, s: _Site) -> Triple:
    return rng.standard_normal(s.query), rng.standard_normal(s.key), rng.standard_normal(s.value)


_PROFILES: dict[str, tuple[_Profile, int]] = {
    "zeros": (_zeros, 1),
    "ones": (_ones, 1),
    "unit": (_unit, 2),
    "small_integers": (_small_integers, 3),
    "ties": (_ties, 2),
    "onehot_logits": (_onehot_logits, 2),
    "large_logits": (_large_logits, 2),
    "low_logits": (_low_logits, 2),
    "qk_cancellation": (_qk_cancellation, 2),
    "pv_cancellation": (_pv_cancellation, 2),
    "subnormal": (_subnormal, 1),
    "huge_value": (_huge_value, 1),
    "constant_rows": (_constant_rows, 2),
    "outliers": (_outliers, 2),
    "positive": (_positive, 2),
    "counting": (_counting, 2),
    "gaussian": (_gaussian, 5),
}

VALUE_PROFILES = tuple(_PROFILES)
VALUE_OPTIONS = weighted(*((name, weight) for name, (_, weight) in _PROFILES.items()))


def build_values(profile: str, axes: Axes, dtype: str, scale: float, rng: np.random.Generator) -> Triple:
    """(query, key, value) as float64 arrays of finite values of the dtype; `scale` is the multiplier in force."""
    one_of("value profile", profile, VALUE_PROFILES)
    query, key, value = _PROFILES[profile][0](rng, _Site(axes, get_format(dtype), scale))
    return fit(dtype, query), fit(dtype, key), fit(dtype, value)


def fit(dtype: str, values: np.ndarray) -> np.ndarray:
    """Clip to the finite range of the format, then round to it."""
    if dtype == "float64":
        return np.array(values, dtype=np.float64)
    largest = get_format(dtype).largest
    if values.size and max(values.max(), -values.min()) > largest:
        values = np.clip(values, -largest, largest)
    return round_to(dtype, values)
