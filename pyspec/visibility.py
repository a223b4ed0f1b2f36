"""Visibility relations [Q, K] (True: the query may attend to the key) and their composition.

The predicates `sees_…` take positions (or segments) of queries and keys as arrays that broadcast to each other; the
relations of a head are those predicates at the positions 0, 1, 2, …
"""

from __future__ import annotations

import numpy as np

LEAN_MODULES = ("AttnSpec.Visibility",)


def _positions(queries: int, keys: int) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(queries)[:, None], np.arange(keys)[None, :]


def sees_earlier(query: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Keys at or before the query."""
    return key <= query


def sees_within(query: np.ndarray, key: np.ndarray, left: np.ndarray | int, right: np.ndarray | int) -> np.ndarray:
    """Keys at most `left` before the query and at most `right` after it, both ends in."""
    return (query - left <= key) & (key <= query + right)


def sees_prefix(query: np.ndarray, key: np.ndarray, length: np.ndarray | int) -> np.ndarray:
    """Keys before position `length`, and those at or before the query."""
    return (key < length) | sees_earlier(query, key)


def sees_own_segment(query: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Keys of the query's segment."""
    return query == key


def full(queries: int, keys: int) -> np.ndarray:
    """Every key is visible. Lean: AttnSpec.Visibility.full."""
    return np.ones((queries, keys), dtype=bool)


def empty(queries: int, keys: int) -> np.ndarray:
    """No key is visible. Lean: AttnSpec.Visibility.empty."""
    return np.zeros((queries, keys), dtype=bool)


def compose(*parts: np.ndarray) -> np.ndarray:
    """Visible where every part is visible. Lean: AttnSpec.Visibility.compose."""
    if not parts:
        raise ValueError("compose needs at least one visibility relation: use full(queries, keys) for no limit")
    out = parts[0]
    for part in parts[1:]:
        out = out & part
    return out


def causal(queries: int, keys: int, offset: int) -> np.ndarray:
    """Query i sees keys j ≤ i + offset. Lean: AttnSpec.Visibility.causal."""
    i, j = _positions(queries, keys)
    return sees_earlier(i + offset, j)


def upper_left(queries: int, keys: int) -> np.ndarray:
    """Causal with the diagonal from the upper left corner. Lean: AttnSpec.Visibility.upperLeft."""
    return causal(queries, keys, 0)


def lower_right(queries: int, keys: int) -> np.ndarray:
    """Causal with the diagonal into the lower right corner. Lean: AttnSpec.Visibility.lowerRight."""
    return causal(queries, keys, keys - queries)


def window(queries: int, keys: int, left: int, right: int, offset: int = 0) -> np.ndarray:
    """Query i sees keys within [i + offset - left, i + offset + right], both ends in.

    Lean: AttnSpec.Visibility.window.
    """
    i, j = _positions(queries, keys)
    return sees_within(i + offset, j, left, right)


def prefix(queries: int, keys: int, length: int, offset: int = 0) -> np.ndarray:
    """The first `length` keys are visible to all, the rest causally. Lean: AttnSpec.Visibility.prefix."""
    i, j = _positions(queries, keys)
    return sees_prefix(i + offset, j, length)


def key_padding(queries: int, valid: np.ndarray) -> np.ndarray:
    """Only valid keys are visible, to every query. Lean: AttnSpec.Visibility.keyPadding."""
    return np.broadcast_to(np.asarray(valid, dtype=bool)[None, :], (queries, len(valid))).copy()


def segments(query_segment: np.ndarray, key_segment: np.ndarray) -> np.ndarray:
    """A query sees the keys of its own segment (packed sequences). Lean: AttnSpec.Visibility.segments."""
    return sees_own_segment(np.asarray(query_segment)[:, None], np.asarray(key_segment)[None, :])
