"""Gradients: profiles of grad_output, the cotangent that a backward pass starts from."""

from __future__ import annotations

import numpy as np

from attnspec.pyspec.calls.formats import get_format
from attnspec.strategies.chooser import one_of, weighted
from attnspec.strategies.values import fit

GRADIENT_PROFILES = ("ones", "one_hot", "small_integers", "constant_rows", "gaussian", "huge", "zeros")
GRADIENT_OPTIONS = weighted(
    ("ones", 4),
    ("one_hot", 4),
    ("small_integers", 6),
    ("constant_rows", 4),
    ("gaussian", 12),
    ("huge", 1),
    ("zeros", 1),
)


def build_gradient(profile: str, shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> np.ndarray:
    """grad_output [B, Hq, Q, Dv], finite values of the dtype.

    "one_hot" has a single 1; "constant_rows" repeats one number along each row, so that the output's gradient is
    blind to which column a value stands in; "huge" lies near the format's largest.
    """
    one_of("gradient profile", profile, GRADIENT_PROFILES)
    if profile == "ones":
        return np.ones(shape)
    if profile in ("zeros", "one_hot"):
        grad = np.zeros(shape)
        if profile == "one_hot" and grad.size:
            grad.flat[rng.integers(grad.size)] = 1.0
        return grad
    if profile == "small_integers":
        return rng.integers(-3, 4, size=shape).astype(np.float64)
    if profile == "constant_rows":
        return fit(dtype, np.broadcast_to(rng.standard_normal((*shape[:-1], 1)), shape))
    if profile == "huge":
        return fit(dtype, rng.uniform(-0.9, 0.9, size=shape) * get_format(dtype).largest)
    return fit(dtype, rng.standard_normal(shape))
