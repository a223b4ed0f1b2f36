"""Head maps: which key head each query head reads."""

from __future__ import annotations

from attnspec.pyspec.heads import grouped
from attnspec.strategies.chooser import Chooser, weighted
from attnspec.strategies.features import Features
from attnspec.strategies.profiles import Profile

HEAD_MAP_KINDS = ("grouped", "arbitrary")
_KINDS = weighted(("grouped", 7), ("arbitrary", 1))


def draw_heads(choose: Chooser, profile: Profile, features: Features) -> tuple[str, int, tuple[int, ...]]:
    """(kind, number of key heads, head map): equal groups, or any map, in which a key head may be unused."""
    query_heads = choose("query_heads", profile.heads)
    if choose("head_map", _KINDS if features.any_head_map else ("grouped",)) == "arbitrary":
        key_heads = choose("key_heads", profile.heads)
        return "arbitrary", key_heads, tuple(choose("head_target", range(key_heads)) for _ in range(query_heads))
    key_heads = choose("key_heads", _divisors(query_heads) if features.grouped_heads else (query_heads,))
    return "grouped", key_heads, grouped(query_heads, key_heads)


def _divisors(n: int) -> tuple[int, ...]:
    # One key head for each query head is the plain case: it comes first.
    return tuple(m for m in range(n, 0, -1) if n % m == 0)
