"""Memory layouts in which a subject is handed its tensors."""

from __future__ import annotations

from attnspec.pyspec.calls.call import MASK_LAYOUTS, Layout
from attnspec.strategies.chooser import Chooser, weighted
from attnspec.strategies.features import Features

_SCHEMES = weighted(("plain", 4), ("same", 2), ("mixed", 2))
_MASKS = weighted((MASK_LAYOUTS[0], 4), *((name, 1) for name in MASK_LAYOUTS[1:]))


def draw_layout(choose: Chooser, features: Features) -> Layout:
    """A layout for query, key, value and mask: plain in half of the calls, else one for all, or one for each."""
    names = features.layouts
    mask = choose("layout.mask", _MASKS)
    scheme = choose("layout", _SCHEMES if len(names) > 1 else ("plain",))
    query = choose("layout.query", {"plain": names[:1], "same": names[1:], "mixed": names}[scheme])
    key = choose("layout.key", names if scheme == "mixed" else (query,))
    value = choose("layout.value", names if scheme == "mixed" else (query,))
    return Layout(query, key, value, mask)
