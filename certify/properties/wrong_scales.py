"""The usual mistakes with the scale, as the multipliers that they come to."""

from __future__ import annotations

import math

from attnspec.pyspec.scale import default_scale


def wrong_multipliers(multiplier: float, key_width: int, heads: int) -> dict[str, float]:
    """Effective multipliers of the usual mistakes, by name.

    Those that happen to equal the right one are left out, and so is a second name for the same number: without a
    scale of one's own, the default on top of it is the default twice.
    heads: query heads, so that heads · key_width is the width of the model.
    """
    default = default_scale(key_width)
    found = {
        "scale ignored": 1.0,
        "scale applied twice": multiplier * multiplier,
        "scale used as a denominator": math.inf if multiplier == 0.0 else 1.0 / multiplier,
        "scale derived from the width of the model": default_scale(heads * key_width),
        "default scale instead of the one given": default,
        "default scale on top of the one given": multiplier * default,
        "half of a split scale": math.sqrt(abs(multiplier)),
    }
    distinct: dict[str, float] = {}
    for name, x in found.items():
        if math.isfinite(x) and x != multiplier and x not in distinct.values():
            distinct[name] = x
    return distinct
