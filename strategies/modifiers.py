"""Score modifiers: softcaps, the logits of attention sinks, and ALiBi slopes."""

from __future__ import annotations

import numpy as np

from attnspec.strategies.chooser import one_of, weighted
from attnspec.strategies.values import fit

SOFTCAPS = (1.0, 5.0, 20.0, 50.0)
# Rare: a call with a softcap or a sink tells less about everything else.
SOFTCAP_OPTIONS: tuple[float | None, ...] = weighted((None, 20), *((cap, 1) for cap in SOFTCAPS))
SINK_KINDS = ("none", "zeros", "small", "large")
SINK_OPTIONS = weighted(("none", 17), ("zeros", 1), ("small", 1), ("large", 1))
SLOPE_KINDS = ("none", "zeros", "powers", "signed", "steep")
SLOPE_OPTIONS = weighted(("none", 17), ("zeros", 1), ("powers", 2), ("signed", 1), ("steep", 1))


def build_sink(kind: str, heads: int, dtype: str, rng: np.random.Generator) -> np.ndarray | None:
    """Sink logits [Hq], finite values of the dtype, or None.

    "small" is normal; "large" is ±20 to ±100, so that a sink takes nearly all mass or next to none.
    """
    one_of("sink kind", kind, SINK_KINDS)
    if kind == "none":
        return None
    if kind == "zeros":
        return np.zeros(heads)
    if kind == "small":
        return fit(dtype, rng.standard_normal(heads))
    return fit(dtype, np.copysign(rng.uniform(20, 100, size=heads), rng.standard_normal(heads)))


def build_slopes(kind: str, heads: int, dtype: str, rng: np.random.Generator) -> np.ndarray | None:
    """ALiBi slopes [Hq], finite values of the dtype, or None.

    "powers" are 2^-1, 2^-2, ... as models have them; "signed" are normal; "steep" are 1 to 8, so that few keys count.
    """
    one_of("slopes kind", kind, SLOPE_KINDS)
    if kind == "none":
        return None
    if kind == "zeros":
        return np.zeros(heads)
    if kind == "powers":
        return fit(dtype, 2.0 ** -np.arange(1, heads + 1))
    return fit(dtype, rng.standard_normal(heads) if kind == "signed" else rng.uniform(1, 8, size=heads))
