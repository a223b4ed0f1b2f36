"""Shapes: sizes of a call, around tile edges, within the limits of a profile."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from attnspec.pyspec.calls.call import Axes
from attnspec.strategies.chooser import Chooser, weighted
from attnspec.strategies.features import Features
from attnspec.strategies.profiles import Profile

_ORDERS = weighted(("keys", 3), ("queries", 1))
LONG = 127
_LONG = weighted((False, 19), (True, 1))
ZEROED = ("queries", "keys", "batch", "key_width", "value_width")


@lru_cache(maxsize=4096)
def _fitting(options: tuple[int, ...], limit: int) -> tuple[int, ...]:
    # Options are ascending; the smallest is always allowed.
    return tuple(n for n in options if n <= limit) or options[:1]


@lru_cache(maxsize=4096)
def _beside(lengths: tuple[int, ...], limit: int, first: int) -> tuple[int, ...]:
    # Squares are what most users run. They stand last: before them, a place in the list means the same length always.
    return _fitting(lengths, limit // first) + ((first,) * 4 if first * first <= limit else ())


@lru_cache(maxsize=1024)
def _value_widths(options: tuple[int, ...], key_width: int) -> tuple[int, ...]:
    # Equal widths in about half of the calls; ascending, so that shrinking still ends at width 1.
    return tuple(sorted(options + (key_width,) * 12))


@lru_cache(maxsize=16)
def _zero_options(empty_rows: bool) -> tuple[str, ...]:
    names = tuple(n for n in ZEROED if empty_rows or n != "keys")
    return weighted(("none", 120 - len(names)), *((n, 1) for n in names))


@lru_cache(maxsize=16)
def _mostly_long(lengths: tuple[int, ...]) -> tuple[int, ...]:
    # Only the weights differ: a place in the list means the same length, so that shrinking can leave the long ones.
    return tuple(sorted(lengths + tuple(n for n in lengths if n > LONG) * 20))


def _long_fits(profile: Profile, query_heads: int) -> bool:
    return max(profile.lengths) >= LONG and profile.scores // query_heads >= LONG * LONG


def draw_axes(choose: Chooser, profile: Profile, features: Features, query_heads: int, key_heads: int) -> Axes:
    """Sizes with the given heads. One axis is zero in about 1 of 24 calls when features.zero_sizes is on."""
    # Now and then both lengths are far beyond a tile: the shares would hardly ever leave room for that.
    long = choose("long", _LONG if _long_fits(profile, query_heads) else (False,))
    share = choose("share", (1,) if long else profile.shares)
    # Widths cost far less than lengths: their limit is cut to a quarter at most.
    scores, elements = profile.scores // share, profile.elements // min(share, 4)
    batch = choose("batch", (1,) if long else profile.batches)
    lengths, limit = _mostly_long(profile.lengths) if long else profile.lengths, scores // (batch * query_heads)
    # The length drawn first may be any; the other one has to fit beside it.
    order = choose("order", _ORDERS)
    first = choose("first_length", _fitting(lengths, limit // LONG if long else limit))
    second = choose("second_length", _beside(lengths, limit, first))
    keys, queries = (first, second) if order == "keys" else (second, first)
    rows = batch * max(query_heads * queries, key_heads * keys)
    widths = _fitting(profile.widths, elements // rows)
    key_width = choose("key_width", widths)
    value_width = choose(
        "value_width", _value_widths(widths, key_width) if features.value_width_differs else (key_width,)
    )
    axes = Axes(batch, query_heads, key_heads, queries, keys, key_width, value_width)
    # Without empty rows there is at least one key: a query over no keys has an empty row.
    zero = choose("zero", _zero_options(features.empty_rows) if features.zero_sizes else ("none",))
    if zero != "none":
        axes = zeroed(axes, zero, both_widths=not features.value_width_differs)
    return axes


def zeroed(axes: Axes, axis: str, *, both_widths: bool = False) -> Axes:
    """The same sizes with one axis of length zero (both widths, where they may not differ)."""
    if both_widths and axis in ("key_width", "value_width"):
        return replace(axes, key_width=0, value_width=0)
    return replace(axes, **{axis: 0})
