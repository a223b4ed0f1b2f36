"""What may be drawn: a subject's claims, as a filter on plans."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from attnspec.pyspec.calls.call import LAYOUTS, MASK_ENCODINGS
from attnspec.pyspec.calls.formats import FORMATS
from attnspec.strategies.chooser import one_of


@dataclass(frozen=True)
class Features:
    """What a drawn call may contain; everything but softcap, sink and slopes is on by default.

    Each field has the name of the claim (of a subject's Capabilities) that allows it; `features_of` reads them off.
    Claims without a field here shape no draws: what a subject returns, refuses or repeats, and what properties add to
    drawn calls by themselves (score families, returned weights, dropout that the subject draws).
    dtypes, encodings, layouts: names that may be drawn, simplest first. gradients: calls carry a grad_output
    (always when on, never when off). bias, value_width_differs, grouped_heads, any_head_map,
    dropout_multiplier, empty_rows, zero_sizes, any_scale, softcap, sink, slopes: may the call have it.
    Raises ValueError for an unknown or missing name.
    """

    dtypes: tuple[str, ...] = tuple(FORMATS)
    encodings: tuple[str, ...] = MASK_ENCODINGS
    layouts: tuple[str, ...] = LAYOUTS
    gradients: bool = True
    bias: bool = True
    value_width_differs: bool = True
    grouped_heads: bool = True
    any_head_map: bool = True
    dropout_multiplier: bool = True
    empty_rows: bool = True
    zero_sizes: bool = True
    any_scale: bool = True
    softcap: bool = False
    sink: bool = False
    slopes: bool = False

    def __post_init__(self) -> None:
        known = {"dtypes": tuple(FORMATS), "encodings": MASK_ENCODINGS, "layouts": LAYOUTS}
        for field, options in known.items():
            names = getattr(self, field)
            if not isinstance(names, tuple) or not names:
                raise ValueError(f"features.{field} = {names!r}: expected a tuple of at least one name")
            for name in names:
                one_of(f"features.{field}", name, options)

    @property
    def any_mask(self) -> bool:
        """Can a mask of any pattern be passed?"""
        return "bool" in self.encodings or "additive" in self.encodings

    @property
    def any_bias(self) -> bool:
        """Can a bias be passed?"""
        return self.bias and "additive" in self.encodings


def features_of(claims: Any, *dtypes: str) -> Features:
    """What may be drawn inside a subject's claims at these dtypes: every field is read off the claim of its name."""
    allowed = {field.name: getattr(claims, field.name) for field in fields(Features)}
    return Features(**{**allowed, "dtypes": dtypes})
