"""What a visibility relation may be made of: the parts by name, with their defaults, and which exclude each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TypedDict, Unpack

import numpy as np

from attnspec.pyspec.calls.errors import did_you_mean
from attnspec.pyspec.calls.masks.handoff import VisibilityError
from attnspec.pyspec.calls.masks.positions import Ints

Window = tuple[int | None, int | None]


class VisibilityParts(TypedDict, total=False):
    """The arguments of `compile_visibility` by name, for type checkers; `Parts` has their defaults."""

    causal: bool
    prefix_length: Ints | None
    window: Window | Sequence[Window] | None
    parents: Sequence[int] | np.ndarray | None
    alignment: str | None
    cache_offset: Ints | None
    query_positions: Ints | None
    key_positions: Ints | None
    key_valid: np.ndarray | None
    query_valid: np.ndarray | None
    query_segment: Ints | None
    key_segment: Ints | None
    cross_attention: bool
    extra: Mapping[str, np.ndarray] | None


@dataclass(frozen=True, eq=False)
class Parts:
    """The parts that one relation is asked for; at the defaults every key is visible to every query."""

    causal: bool = False
    prefix_length: Ints | None = None
    window: Window | Sequence[Window] | None = None
    parents: Sequence[int] | np.ndarray | None = None
    alignment: str | None = None
    cache_offset: Ints | None = None
    query_positions: Ints | None = None
    key_positions: Ints | None = None
    key_valid: np.ndarray | None = None
    query_valid: np.ndarray | None = None
    query_segment: Ints | None = None
    key_segment: Ints | None = None
    cross_attention: bool = False
    extra: Mapping[str, np.ndarray] | None = None

    @property
    def causal_regions(self) -> tuple[str, ...]:
        """Names of the parts that each decide alone which keys lie in a query's past."""
        asked = {
            "causal": self.causal,
            "prefix_length": self.prefix_length is not None,
            "parents": self.parents is not None,
        }
        return tuple(name for name, is_asked in asked.items() if is_asked)


def read_parts(**parts: Unpack[VisibilityParts]) -> Parts:
    """The parts with the defaults filled in.

    Raises VisibilityError for a name that is no part, with the nearest one, and for two causal regions.
    """
    known = [field.name for field in fields(Parts)]
    for name in parts:
        if name not in known:
            hint = did_you_mean(name, known)
            raise VisibilityError(f"{name}: no part of a mask{hint}: expected one of {', '.join(known)}")
    found = Parts(**parts)
    _one_causal_region(found.causal_regions)
    return found


def no_order_across(parts: Parts, alignment: str) -> None:
    """Raise VisibilityError for a part of cross attention that compares positions of queries with those of keys."""
    looking = {"window": parts.window is not None, "alignment": alignment != "none"}
    ordered = (*parts.causal_regions, *(name for name, looks in looking.items() if looks))
    if ordered:
        raise VisibilityError(
            f"{ordered[0]} with cross_attention: queries and keys are different sequences and share no positions; "
            "restrict memory by key_valid, segments or a predicate in `extra`"
        )


def _one_causal_region(regions: Sequence[str]) -> None:
    if len(regions) > 1:
        reason = {
            "prefix_length": "a prefix is a causal region of its own, and a separate causal flag hides prefix keys "
            "from earlier prefix queries",
            "parents": "a tree orders its candidates by ancestry, and a second order hides or reveals others",
        }[regions[1]]
        raise VisibilityError(f"{regions[0]} together with {regions[1]}: {reason}; leave {regions[0]} out")
