"""Small random calls for the tests of the bound and of the oracle: everything that a ledger has to cope with."""

from __future__ import annotations

import numpy as np

from attnspec.pyspec import AttentionCall, Dropout, make_call
from attnspec.pyspec.calls.formats import get_format, round_to

PROFILES = ("normal", "large", "tiny", "cancel", "huge", "ones", "spread", "onehot")


def values(rng: np.random.Generator, dtype: str, shape: tuple[int, ...], profile: str) -> np.ndarray:
    """Values of one tensor, rounded to the dtype and clipped to its range."""
    fmt = get_format(dtype)
    x = rng.standard_normal(shape)
    if profile == "large":
        x *= 30.0
    elif profile == "tiny":
        x *= fmt.tiny * 2.0 ** float(rng.integers(-8, 12))
    elif profile == "cancel" and shape[-1] > 1:
        half = shape[-1] // 2
        x[..., half : 2 * half] = -x[..., :half]
    elif profile == "huge":
        x = np.clip(x, -3.0, 3.0) * (fmt.largest / 4.0 ** float(rng.integers(1, 6)))
    elif profile == "ones":
        x = np.ones(shape)
    elif profile == "spread":
        x *= 2.0 ** rng.integers(-12, 12, size=shape)
    elif profile == "onehot":
        x *= np.where(rng.random(shape) < 0.1, 200.0, 0.1)
    return round_to(dtype, np.clip(x, -fmt.largest, fmt.largest))


def draw(rng: np.random.Generator, dtype: str, *, most: int = 9, profiles: tuple[str, ...] = PROFILES) -> AttentionCall:
    """A call with any mask, empty rows, grouped heads, bias, scale, dropout multiplier and other value widths."""
    batch, group, key_heads = (int(rng.integers(1, 3)) for _ in range(3))
    heads = group * key_heads
    queries, keys = (int(n) for n in rng.integers(1, most + 1, size=2))
    width, value_width = (int(n) for n in rng.integers(1, 6, size=2))
    plain = rng.random() < 0.5

    def some(shape: tuple[int, ...]) -> np.ndarray:
        return values(rng, dtype, shape, "normal" if plain else str(rng.choice(profiles)))

    score_shape = (batch, heads, queries, keys)
    visible = rng.random(score_shape) < rng.choice([0.3, 0.7, 1.0])
    bias = None
    if rng.random() < 0.4:
        bias = some(tuple(1 if rng.random() < 0.4 else n for n in score_shape))
    dropout = None
    if rng.random() < 0.3:
        p = float(rng.choice([0.1, 0.5, 0.9]))
        dropout = Dropout(p, (rng.random(score_shape) >= p) / (1.0 - p))
    scale = rng.choice([None, None, None, 1.0, 0.0, -0.5, 3.0, 1e-3])
    return make_call(
        some((batch, heads, queries, width)),
        some((batch, key_heads, keys, width)),
        some((batch, key_heads, keys, value_width)),
        dtype=dtype,
        visible=visible,
        scale=None if scale is None else float(scale),
        bias=bias,
        encoding="bool" if bias is None else "additive",
        dropout=dropout,
        grad_output=some((batch, heads, queries, value_width)),
    )
