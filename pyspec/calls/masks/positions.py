"""Positions of queries and keys, and the readers of the compiler's arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnspec.pyspec.calls.masks.handoff import VisibilityError

ALIGNMENTS = ("upper_left", "lower_right", "positions")
Ints = int | Sequence[int] | np.ndarray


@dataclass(frozen=True, eq=False)
class Places:
    """Positions of queries [B|1,1,Q,1] and keys [B|1,1,1,K], how they came about, and the position of query 0."""

    query: np.ndarray
    key: np.ndarray
    alignment: str
    query_rule: str
    key_rule: str
    offset: tuple[int, ...] | None


def place(
    shape: tuple[int, int, int, int],
    alignment: str | None,
    cache_offset: Ints | None,
    query_positions: Ints | None,
    key_positions: Ints | None,
    tree: bool,
) -> Places:
    batch, _, queries, keys = shape
    if alignment is not None and alignment not in ALIGNMENTS:
        raise VisibilityError(f"alignment = {alignment!r}: expected one of {', '.join(ALIGNMENTS)}")
    given = [n for n, x in (("cache_offset", cache_offset), ("query_positions", query_positions)) if x is not None]
    if len(given) == 2:
        raise VisibilityError("cache_offset and query_positions both place the queries: give one of them")
    if alignment in ("upper_left", "lower_right"):
        clash = [*given, *(["key_positions"] if key_positions is not None else [])]
        if clash:
            raise VisibilityError(
                f"alignment = {alignment!r} and {clash[0]} both place the queries: leave one out, "
                "or say alignment='positions'"
            )
    if alignment == "positions" and not given:
        raise VisibilityError("alignment = 'positions': give query_positions or cache_offset")
    j = np.arange(keys)
    key, key_rule = j[None, :], "0 to K - 1"
    if key_positions is not None:
        key, key_rule = rows("key_positions", key_positions, batch, keys, int), "explicit"
        if not given:
            raise VisibilityError("key_positions without query_positions: give both, in the same coordinates")
    if query_positions is not None:
        query = rows("query_positions", query_positions, batch, queries, int)
        return Places(query[:, None, :, None], key[:, None, None, :], "positions", "explicit", key_rule, None)
    if cache_offset is not None:
        start = one_or_each("cache_offset", cache_offset, batch)
        found, rule = "positions", "cache_offset + i"
    else:
        start = np.array([keys - queries if alignment == "lower_right" or (tree and alignment is None) else 0])
        found = alignment or ("lower_right" if tree else "none")
        rule = {"lower_right": "K - Q + i"}.get(found, "i")
    query = start[:, None] + np.arange(queries)[None, :]
    return Places(query[:, None, :, None], key[:, None, None, :], found, rule, key_rule, tuple(int(n) for n in start))


def one_or_each(field: str, values: Ints, batch: int) -> np.ndarray:
    """One whole number for all, or [B]."""
    found = np.atleast_1d(np.asarray(values))
    if found.shape not in ((1,), (batch,)) or not np.issubdtype(found.dtype, np.integer):
        raise VisibilityError(f"{field} = {values!r}: expected a whole number, or one for each of {batch} batch rows")
    return found.astype(np.int64)


def rows(field: str, values: Any, batch: int, length: int, kind: type) -> np.ndarray:
    """[1 | B, length] from [length] or [B, length]."""
    found = np.asarray(values)
    found = found[None] if found.ndim == 1 else found
    wanted = f"[{length}] or [{batch}, {length}]"
    if found.ndim != 2 or found.shape[1] != length or found.shape[0] not in (1, batch):
        raise VisibilityError(f"{field} has shape {list(np.shape(values))}: expected {wanted}")
    if kind is bool and found.dtype != np.bool_:
        raise VisibilityError(f"{field} has dtype {found.dtype}: expected bool, True where the token is real")
    if kind is int and found.size and not np.issubdtype(found.dtype, np.integer):
        raise VisibilityError(f"{field} has dtype {found.dtype}: expected whole numbers")
    return found.astype(np.int64) if kind is int else found


def describe_validity(valid: np.ndarray) -> str:
    """Shape and side of the padding in words."""
    sides = set()
    for row in valid:
        real = np.flatnonzero(row)
        if real.size == row.size:
            continue
        if real.size == 0:
            sides.add("whole row")
        elif real[-1] - real[0] + 1 != real.size:
            sides.add("holes")
        else:
            sides |= {s for s, hit in (("left", real[0] > 0), ("right", real[-1] < row.size - 1)) if hit}
    return f"{list(valid.shape)}, true means real, padding: {', '.join(sorted(sides)) or 'none'}"
