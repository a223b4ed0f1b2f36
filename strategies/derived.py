"""Calls derived from a call: another mask, fewer rows or keys, garbage where nobody looks."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np

from attnspec.pyspec import AttentionCall, Visibility
from attnspec.pyspec.calls.cut import compact, take, with_explicit_mask
from attnspec.pyspec.calls.fingerprint import fingerprint
from attnspec.pyspec.calls.formats import round_to

# More rows or keys than one tile of 32 has.
SEVERAL_TILES = 40


def call_rng(call: AttentionCall, purpose: str) -> np.random.Generator:
    """Random numbers that depend on nothing but the call and a purpose, so that a replay draws the same."""
    digest = hashlib.sha256(purpose.encode() + fingerprint(call)).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "little"))


def with_mask(call: AttentionCall, mask: np.ndarray) -> AttentionCall:
    """The call with another visibility mask, for every query, passed as a tensor."""
    return with_explicit_mask(call).but(
        visibility=Visibility(np.ascontiguousarray(mask), empty_rows=call.visibility.empty_rows)
    )


def with_least_mask(call: AttentionCall, mask: np.ndarray) -> AttentionCall:
    """The call with another mask, of length 1 along every axis that it does not vary along, also in memory: kernels
    read masks of one row, one column or one head by other paths than whole ones.
    """
    return with_mask(call, compact(mask)).but(layout=replace(call.layout, mask="contiguous"))


def take_queries(call: AttentionCall, rows: np.ndarray) -> AttentionCall:
    """Only those query rows, in that order, with the mask passed as a tensor."""
    return take(with_explicit_mask(call), "queries", rows)


def take_keys(call: AttentionCall, keys: np.ndarray) -> AttentionCall:
    """Only those keys, in that order, with the mask passed as a tensor."""
    return take(with_explicit_mask(call), "keys", keys)


def over_several_tiles(call: AttentionCall, *, queries: bool = False) -> AttentionCall:
    """The call with its keys repeated until there are more than small tiles hold, and its queries where asked."""
    a = call.axes
    if 0 < a.keys < SEVERAL_TILES:
        call = take_keys(call, np.arange(SEVERAL_TILES) % a.keys)
    if queries and 0 < a.queries < SEVERAL_TILES:
        call = take_queries(call, np.arange(SEVERAL_TILES) % a.queries)
    return call


def keys_hidden_from_all(call: AttentionCall) -> np.ndarray:
    """[B, Hkv, K] boolean: keys that no query head reading them may see from any row."""
    a = call.axes
    seen = np.zeros((a.batch, a.key_heads, a.keys), dtype=bool)
    any_row = np.asarray(call.visible.any(axis=2))
    for head, target in enumerate(call.head_map):
        seen[:, target] |= any_row[:, head]
    return ~seen


def garbage(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Finite values of mixed sizes that would be noticed if they leaked."""
    size = rng.choice([1.0, 30.0, 1000.0], size=shape)
    return round_to(dtype, size * (1.0 + np.abs(rng.standard_normal(shape))))


def whole_bias(call: AttentionCall) -> AttentionCall:
    """A bias of small integers, so that shifting it by an integer is exact in every format."""
    rng = call_rng(call, "bias")
    return call.but(bias=rng.integers(-4, 5, call.score_shape).astype(np.float64), encoding="additive")
