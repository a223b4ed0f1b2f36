"""Packed sequences by their boundaries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from attnspec.pyspec import visibility
from attnspec.pyspec.calls.encodings.base import Encoding, EncodingError, Request, Shape


@dataclass(frozen=True)
class CuSeqlens:
    """Cumulative lengths of packed sequences, [0, ..., total], for queries and keys, and how each is masked inside.

    causal: None (each sequence whole), "upper_left" or "lower_right" (of each sequence by itself).
    """

    query: tuple[int, ...]
    key: tuple[int, ...]
    causal: str | None = None


_INSIDE = {None: visibility.full, "lower_right": visibility.lower_right, "upper_left": visibility.upper_left}


def _read(payload: CuSeqlens, shape: Shape) -> np.ndarray:
    relation = np.zeros(shape[2:], dtype=bool)
    for (q, q_end), (k, k_end) in zip(pairwise(payload.query), pairwise(payload.key), strict=True):
        relation[q:q_end, k:k_end] = _INSIDE[payload.causal](q_end - q, k_end - k)
    return np.broadcast_to(relation, shape)


def _make(r: Request) -> CuSeqlens:
    b, h, q, k = r.shape
    if "query_boundaries" in r.options:
        query = _given("query_boundaries", r.options["query_boundaries"], q)
        key = _given("key_boundaries", r.options.get("key_boundaries", query), k)
        if len(query) != len(key):
            raise EncodingError("cu_seqlens", f"{len(query) - 1} query sequences but {len(key) - 1} key sequences")
    else:
        query, key = _boundaries(r.visible[0, 0] if b and h else np.ones((q, k), dtype=bool))
    inside = r.options.get("causal")
    if "causal" in r.options and inside not in _INSIDE:
        raise EncodingError("cu_seqlens", f"causal = {inside!r}: expected None, 'upper_left' or 'lower_right'")
    options = [CuSeqlens(query, key, x) for x in ([inside] if "causal" in r.options else _INSIDE)]
    return next((x for x in options if (_read(x, r.shape) == r.visible).all()), options[0])


def _given(field: str, boundaries: Sequence[int], total: int) -> tuple[int, ...]:
    cuts = tuple(int(n) for n in boundaries)
    if not cuts or cuts[0] != 0 or cuts[-1] != total or any(x > y for x, y in pairwise(cuts)):
        raise EncodingError("cu_seqlens", f"{field} = {list(cuts)}: expected 0, ..., {total}, never decreasing")
    return cuts


def _boundaries(relation: np.ndarray) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Boundaries where the first visible key moves on; right whenever there are boundaries that say the relation."""
    queries, keys = relation.shape
    query, key, last = [0], [0], -1
    for i in range(queries):
        if not relation[i].any():
            continue
        first = int(relation[i].argmax())
        if last >= 0 and first > last:
            query.append(i)
            key.append(first)
        last = first
    return (*query, queries), (*key, keys)


CU_SEQLENS = Encoding(
    name="cu_seqlens",
    polarity="none: boundaries",
    exact=True,
    expresses="packed sequences, each whole or causal, equal for all batch rows and heads",
    make=_make,
    read=_read,
    options=("query_boundaries", "key_boundaries", "causal"),
)
