"""The visibility compiler: from coordinates and validity to one relation, with a record of how it came about.

Every predicate is a boolean relation that broadcasts to [B, Hq, Q, K]; the compiled relation is their conjunction.
The relation is compiled once, before any encoding; `pyspec.calls.encodings` puts it into the form a kernel takes.
Lean: AttnSpec.Visibility; AttnProofs.visibility_composition, AttnProofs.prefix_is_a_causal_region.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np

from attnspec.pyspec.calls.call import Visibility
from attnspec.pyspec.calls.masks.coordinates import ancestors
from attnspec.pyspec.calls.masks.handoff import CAUSAL_FAMILY, Handoff, VisibilityError
from attnspec.pyspec.calls.masks.parts import Parts, VisibilityParts, Window, no_order_across, read_parts
from attnspec.pyspec.calls.masks.positions import Places, describe_validity, one_or_each, place, rows
from attnspec.pyspec.visibility import sees_earlier, sees_own_segment, sees_prefix, sees_within

Shape = tuple[int, int, int, int]


@dataclass(frozen=True, eq=False)
class Compiled:
    """A compiled relation: mask (True: visible, four axes, each whole or 1), real queries [B, Q], and its record.

    `query_valid` is no part of the relation: it says which output rows will be used.
    """

    mask: np.ndarray
    query_valid: np.ndarray | None
    handoff: Handoff

    @property
    def relation(self) -> np.ndarray:
        """The relation at its whole shape [B, Hq, Q, K]."""
        return np.broadcast_to(self.mask, self.handoff.shape)

    def also(self, predicate: str, relation: np.ndarray, by: str) -> Compiled:
        """The conjunction with one more predicate. A second causal region is refused, whoever asks for it."""
        handoff = self.handoff.applied(predicate, by)
        return _sealed(self.mask & _predicate(predicate, relation, handoff.shape), self.query_valid, handoff)

    def visibility(self, empty_rows: str = "zero") -> Visibility:
        """The relation as the visibility of an `AttentionCall`, under a policy for rows without a key."""
        self.verify()
        return Visibility(np.array(self.mask), self.query_valid, empty_rows)

    def verify(self) -> None:
        """Raise a VisibilityError when the mask is not the one that the record was written for."""
        if mask_digest(self.mask) != self.handoff.digest:
            raise VisibilityError("handoff.digest: the mask changed after it was compiled; compile a new relation")


def compile_visibility(
    batch: int, query_heads: int, queries: int, keys: int, **parts: Unpack[VisibilityParts]
) -> Compiled:
    """The conjunction of everything asked for, as one relation that broadcasts to [B, Hq, Q, K].

    causal: keys at or before the query's position. prefix_length (one, or [B]): keys before it are seen by all,
    the others causally; it is a causal region of its own. window: (left, right) or one pair for each query head,
    None for no limit; at most `left` back and `right` ahead. parents: a tree of candidate tokens (-1: root); each
    sees the cache and its ancestors.
    Where queries sit among the keys: `alignment`, or `cache_offset` (one, or [B]), or explicit positions [N] or
    [B, N]; needed whenever the two lengths differ and a predicate looks at positions.
    key_valid [K] or [B, K] hides keys from every query. query_valid [B, Q] is kept beside the relation.
    query_segment and key_segment [N] or [B, N]: only equal ones meet. cross_attention: queries and keys are different
    sequences and share no positions. extra: further predicates by name.
    Raises VisibilityError with the field, the value and the mend; a part that is none, with the nearest name.
    """
    shape, asked = (batch, query_heads, queries, keys), read_parts(**parts)
    return _conjunction(shape, asked, _places(shape, asked))


def _places(shape: Shape, asked: Parts) -> Places:
    """Where the queries sit among the keys, or the reason why it cannot be known."""
    places = place(
        shape,
        asked.alignment,
        asked.cache_offset,
        asked.query_positions,
        asked.key_positions,
        asked.parents is not None,
    )
    if asked.parents is not None and asked.window is not None:
        raise VisibilityError(
            "window together with parents: distance along a branch is no distance between slots; "
            "compile the window as a predicate in `extra`"
        )
    looks = asked.causal or asked.prefix_length is not None or asked.window is not None
    if asked.cross_attention:
        no_order_across(asked, places.alignment)
    elif looks and places.alignment == "none":
        _, _, queries, keys = shape
        if queries != keys:
            raise VisibilityError(
                f"alignment = None: {queries} queries over {keys} keys can be aligned in more than one way; "
                "say 'upper_left' or 'lower_right', or give cache_offset or query_positions"
            )
        return replace(places, alignment="upper_left")
    return places


def _predicates(shape: Shape, asked: Parts, places: Places) -> tuple[list[tuple[str, np.ndarray, str]], dict[str, Any]]:
    """The predicates in order of application, each (name, relation, its parameters in words), and the parameters."""
    batch, query_heads, queries, keys = shape
    q, k = places.query, places.key
    found: list[tuple[str, np.ndarray, str]] = []
    parameters: dict[str, Any] = {}
    if asked.key_valid is not None:
        found.append(("key_valid", rows("key_valid", asked.key_valid, batch, keys, bool)[:, None, None, :], ""))
    if (asked.query_segment is None) != (asked.key_segment is None):
        raise VisibilityError("query_segment and key_segment: give both or neither; segments are compared pairwise")
    if asked.query_segment is not None and asked.key_segment is not None:
        sq = rows("query_segment", asked.query_segment, batch, queries, int)[:, None, :, None]
        sk = rows("key_segment", asked.key_segment, batch, keys, int)[:, None, None, :]
        found.append(("segments", sees_own_segment(sq, sk), "equal segment ids"))
    if asked.causal:
        found.append(("causal", sees_earlier(q, k), places.alignment))
    if asked.prefix_length is not None:
        length = one_or_each("prefix_length", asked.prefix_length, batch)[:, None, None, None]
        parameters["prefix_length"] = length.ravel().tolist()
        found.append(("prefix", sees_prefix(q, k, length), f"length {parameters['prefix_length']}"))
    if asked.parents is not None:
        found.append(("tree", _tree(asked.parents, shape, places), f"{queries} candidate tokens"))
    if asked.window is not None:
        left, right = _window(asked.window, query_heads)
        parameters["window"] = [[_limit(a), _limit(b)] for a, b in zip(left.ravel(), right.ravel(), strict=True)]
        found.append(("window", sees_within(q, k, left, right), f"(left, right) {parameters['window']}"))
    found += [(name, _predicate(name, relation, shape), "given") for name, relation in (asked.extra or {}).items()]
    return found, parameters


def _conjunction(shape: Shape, asked: Parts, places: Places) -> Compiled:
    predicates, parameters = _predicates(shape, asked, places)
    names = [name for name, _, _ in predicates]
    causal_region = next((n for n in names if n in CAUSAL_FAMILY), "bidirectional")
    handoff = Handoff(
        shape=shape,
        axes=(1, 1, 1, 1),
        batch_layout=_batch_layout(names, places),
        topology="cross" if asked.cross_attention else causal_region,
        alignment=places.alignment,
        query_positions=places.query_rule,
        key_positions=places.key_rule,
        offset=places.offset,
        head_sharing="shared",
        predicates=(),
        parameters=parameters,
    )
    mask = np.ones((1, 1, 1, 1), dtype=bool)
    for name, relation, detail in predicates:
        handoff = handoff.applied(name, "compiler", detail)
        mask = mask & relation
        if name == "key_valid":
            handoff = replace(handoff, key_valid=describe_validity(relation[:, 0, 0, :]))
    query_valid = asked.query_valid
    if query_valid is not None:
        real = rows("query_valid", query_valid, shape[0], shape[2], bool)
        query_valid = np.broadcast_to(real, (shape[0], shape[2])).copy()
        handoff = replace(handoff, query_valid=f"{int(query_valid.sum())} of {query_valid.size} queries are real")
    return _sealed(mask, query_valid, handoff)


def _sealed(mask: np.ndarray, query_valid: np.ndarray | None, handoff: Handoff) -> Compiled:
    mask = np.ascontiguousarray(mask)
    mask.flags.writeable = False
    b, h, q, k = mask.shape
    sharing = "per_head" if h > 1 else "shared"
    return Compiled(
        mask, query_valid, replace(handoff, axes=(b, h, q, k), head_sharing=sharing, digest=mask_digest(mask))
    )


def mask_digest(mask: np.ndarray) -> str:
    """SHA-256 of a stored mask: its shape and its bits."""
    return hashlib.sha256(repr(mask.shape).encode() + np.packbits(mask).tobytes()).hexdigest()


def _tree(parents: Sequence[int] | np.ndarray, shape: Shape, places: Places) -> np.ndarray:
    """Each candidate sees every key before the first candidate's slot, and its ancestors' slots."""
    batch, _, queries, keys = shape
    if places.offset is None:
        raise VisibilityError("parents with query_positions: place the candidates by cache_offset, slot by slot")
    trees = rows("parents", parents, batch, queries, int)
    sees = np.array([ancestors(row) for row in trees], dtype=bool).reshape(len(trees), queries, queries)
    starts = np.array(places.offset)
    count = max(len(trees), len(starts))
    out = np.zeros((count, 1, queries, keys), dtype=bool)
    for b in range(count):
        start, own = int(starts[b % len(starts)]), sees[b % len(trees)]
        if start < 0 or start + queries > keys:
            raise VisibilityError(
                f"cache_offset = {start}: {queries} candidates need the slots {start} to {start + queries - 1}, "
                f"but there are {keys} keys"
            )
        out[b, 0, :, :start] = True
        out[b, 0, :, start : start + queries] = own
    return out


def _window(window: Window | Sequence[Window], query_heads: int) -> tuple[np.ndarray, np.ndarray]:
    """Reaches [1, 1|Hq, 1, 1] to the left and to the right."""
    single = len(window) == 2 and all(x is None or isinstance(x, int | np.integer) for x in window)
    pairs: list[Any] = [window] if single else list(window)
    if not single and len(pairs) != query_heads:
        raise VisibilityError(
            f"window has {len(pairs)} pairs: expected one pair, or one for each of {query_heads} heads"
        )
    reach = np.empty((2, 1, len(pairs), 1, 1), dtype=np.int64)
    for h, pair in enumerate(pairs):
        for side, x in enumerate(pair):
            if x is not None and (isinstance(x, bool) or x < 0):
                raise VisibilityError(f"window = {tuple(pair)}: expected reaches of at least 0, or None for no limit")
            reach[side, 0, h, 0, 0] = _FAR if x is None else x
    return reach[0], reach[1]


_FAR = 2**40


def _limit(reach: np.int64) -> int | None:
    return None if reach >= _FAR else int(reach)


def _predicate(name: str, relation: np.ndarray, shape: Shape) -> np.ndarray:
    found = np.asarray(relation)
    if found.dtype != np.bool_:
        raise VisibilityError(f"{name} has dtype {found.dtype}: expected bool, True where the key is visible")
    if found.ndim != 4 or any(n not in (1, m) for n, m in zip(found.shape, shape, strict=True)):
        raise VisibilityError(
            f"{name} has shape {list(found.shape)}: expected four axes that broadcast to {list(shape)}"
        )
    return found


def _batch_layout(names: list[str], places: Places) -> str:
    if "segments" in names:
        return "packed"
    if places.query_rule == "cache_offset + i" or "tree" in names:
        return "cache"
    return "padded" if "key_valid" in names else "dense"
