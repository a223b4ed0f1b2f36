"""Biases: finite additive terms on the scores, stored with length 1 along any of the axes."""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations

import numpy as np

from attnspec.pyspec.calls.call import Axes
from attnspec.strategies.chooser import one_of, weighted
from attnspec.strategies.masks import MASK_AXES
from attnspec.strategies.values import fit

BIAS_KINDS = ("none", "zeros", "small_integers", "gaussian", "large", "alibi", "on_hidden")
BIAS_OPTIONS = weighted(
    ("none", 18), ("zeros", 1), ("small_integers", 2), ("gaussian", 3), ("large", 1), ("alibi", 1), ("on_hidden", 1)
)


@lru_cache(maxsize=16)
def broadcasts(kind: str) -> tuple[tuple[str, ...], ...]:
    """Sets of axes that a bias of the kind may store with length 1, largest first."""
    if kind == "none":
        return (MASK_AXES,)
    axes = {"alibi": ("batch", "head"), "on_hidden": ()}.get(kind, MASK_AXES)
    return tuple(c for size in range(len(axes), -1, -1) for c in combinations(axes, size))


def build_bias(
    kind: str, broadcast: tuple[str, ...], axes: Axes, mask: np.ndarray, dtype: str, rng: np.random.Generator
) -> np.ndarray | None:
    """The bias, or None. Each axis has full length, or 1 when named in `broadcast`.

    "large" is ±90 to ±1000; "alibi" falls off with distance, one slope a head; "on_hidden" is +7 where the mask
    hides and 0 elsewhere, stored like the mask: it must change nothing.
    """
    one_of("bias kind", kind, BIAS_KINDS)
    if kind == "none":
        return None
    if kind == "on_hidden":
        return np.where(mask, 0.0, 7.0)
    full = (axes.batch, axes.query_heads, axes.queries, axes.keys)
    shape = tuple(1 if name in broadcast else n for name, n in zip(MASK_AXES, full, strict=True))
    if kind == "zeros":
        return np.zeros(shape)
    if kind == "small_integers":
        return rng.integers(-3, 4, size=shape).astype(np.float64)
    if kind == "large":
        return fit(dtype, np.copysign(rng.uniform(90, 1000, size=shape), rng.standard_normal(shape)))
    if kind == "alibi":
        i, j = np.arange(axes.queries)[:, None], np.arange(axes.keys)[None, :]
        slope = 2.0 ** -np.arange(1, shape[1] + 1)
        distance = np.abs(i + axes.keys - axes.queries - j)
        return fit(dtype, np.broadcast_to(-slope[:, None, None] * distance, shape))
    return fit(dtype, rng.standard_normal(shape))
