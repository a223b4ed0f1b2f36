"""The visibility compiler: from coordinates and validity to one relation, with a record of how it came about.

Every predicate is a boolean relation that broadcasts to [B, Hq, Q, K]; the compiled relation is their conjunction.
The relation is compiled once, before any encoding; `pyspec.calls.encodings` puts it into the form a kernel takes.
Lean: AttnSpec.Visibility; AttnProofs.visibility_composition, AttnProofs.prefix_is_a_causal_region.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict, Unpack

import numpy as np

from attnspec.pyspec.calls.call import Visibility
from attnspec.pyspec.calls.masks.coordinates import ancestors
from attnspec.pyspec.calls.masks.handoff import Handoff, VisibilityError
from attnspec.pyspec.calls.masks.positions import Ints, Places, describe_validity, one_or_each, place, rows
from attnspec.pyspec.visibility import sees_earlier, sees_own_segment, sees_prefix, sees_within

Window = tuple[int | None, int | None]


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


class MaskParts(TypedDict, total=False):
    """What a mask is made of; what is left out asks for nothing.

    causal: keys at or before the query's position. prefix_length (one, or [B]): keys before it are seen by all,
    the others causally; it is a causal region of its own. window: (left, right) or one pair for each query head,
    None for no limit; at most `left` back and `right` ahead. parents: a tree of candidate tokens (-1: root); each
    sees the cache and its ancestors.
    Where queries sit among the keys: `alignment`, or `cache_offset` (one, or [B]), or explicit positions [N] or
    [B, N]; needed whenever the two lengths differ and a predicate looks at positions.
    key_valid [K] or [B, K] hides keys from every query. query_valid [B, Q] is kept beside the relation.
    query_segment and key_segment [N] or [B, N]: only equal ones meet. cross_attention: queries and keys are different
    sequences and share no positions. extra: further predicates by name.
    """

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


def compile_visibility(batch: int, query_heads: int, queries: int, keys: int, **asked: Unpack[MaskParts]) -> Compiled:
    """The conjunction of everything asked for, as one relation that broadcasts to [B, Hq, Q, K].

    Raises VisibilityError with the field, the value and the mend; TypeError for a part that MaskParts has not.
    """
    unknown = asked.keys() - MaskParts.__annotations__.keys()
    if unknown:
        raise TypeError(f"{min(unknown)} is no part of a mask: expected {', '.join(MaskParts.__annotations__)}")
    shape = (batch, query_heads, queries, keys)
    places = _places(shape, asked)
    parts: list[tuple[str, np.ndarray, str]] = []
    parameters: dict[str, Any] = {}
    if (key_valid := asked.get("key_valid")) is not None:
        parts.append(("key_valid", rows("key_valid", key_valid, batch, keys, bool)[:, None, None, :], ""))
    query_segment, key_segment = asked.get("query_segment"), asked.get("key_segment")
    if (query_segment is None) != (key_segment is None):
        raise VisibilityError("query_segment and key_segment: give both or neither; segments are compared pairwise")
    if query_segment is not None and key_segment is not None:
        sq = rows("query_segment", query_segment, batch, queries, int)[:, None, :, None]
        sk = rows("key_segment", key_segment, batch, keys, int)[:, None, None, :]
        parts.append(("segments", sees_own_segment(sq, sk), "equal segment ids"))
    q, k = places.query, places.key
    if asked.get("causal"):
        parts.append(("causal", sees_earlier(q, k), places.alignment))
    if (prefix_length := asked.get("prefix_length")) is not None:
        length = one_or_each("prefix_length", prefix_length, batch)[:, None, None, None]
        parameters["prefix_length"] = length.ravel().tolist()
        parts.append(("prefix", sees_prefix(q, k, length), f"length {parameters['prefix_length']}"))
    if (parents := asked.get("parents")) is not None:
        parts.append(("tree", _tree(parents, shape, places), f"{queries} candidate tokens"))
    if (window := asked.get("window")) is not None:
        left, right = _window(window, query_heads)
        parameters["window"] = [[_limit(a), _limit(b)] for a, b in zip(left.ravel(), right.ravel(), strict=True)]
        parts.append(("window", sees_within(q, k, left, right), f"(left, right) {parameters['window']}"))
    parts += [
        (name, _predicate(name, relation, shape), "given") for name, relation in (asked.get("extra") or {}).items()
    ]
    return _conjunction(shape, parts, places, parameters, asked.get("query_valid"), asked.get("cross_attention", False))


def _places(shape: tuple[int, int, int, int], asked: MaskParts) -> Places:
    """Where queries and keys sit, after a look at which parts may stand together."""
    _, _, queries, keys = shape
    has = {name: asked.get(name) is not None for name in ("prefix_length", "parents", "window")}
    causal = asked.get("causal", False)
    regions = {"causal": causal, "prefix_length": has["prefix_length"], "parents": has["parents"]}
    _one_causal_region(regions)
    places = place(
        shape,
        asked.get("alignment"),
        asked.get("cache_offset"),
        asked.get("query_positions"),
        asked.get("key_positions"),
        has["parents"],
    )
    if has["parents"] and has["window"]:
        raise VisibilityError(
            "window together with parents: distance along a branch is no distance between slots; "
            "compile the window as a predicate in `extra`"
        )
    if asked.get("cross_attention"):
        _no_order_across({**regions, "window": has["window"], "alignment": places.alignment != "none"})
    elif (causal or has["prefix_length"] or has["window"]) and places.alignment == "none":
        if queries != keys:
            raise VisibilityError(
                f"alignment = None: {queries} queries over {keys} keys can be aligned in more than one way; "
                "say 'upper_left' or 'lower_right', or give cache_offset or query_positions"
            )
        return replace(places, alignment="upper_left")
    return places


def _conjunction(
    shape: tuple[int, int, int, int],
    parts: list[tuple[str, np.ndarray, str]],
    places: Places,
    parameters: dict[str, Any],
    query_valid: np.ndarray | None,
    cross_attention: bool,
) -> Compiled:
    names = [name for name, _, _ in parts]
    handoff = Handoff(
        shape=shape,
        axes=(1, 1, 1, 1),
        batch_layout=_batch_layout(names, places),
        topology="cross"
        if cross_attention
        else next((n for n in names if n in ("causal", "prefix", "tree")), "bidirectional"),
        alignment=places.alignment,
        query_positions=places.query_rule,
        key_positions=places.key_rule,
        offset=places.offset,
        head_sharing="shared",
        predicates=(),
        parameters=parameters,
    )
    mask = np.ones((1, 1, 1, 1), dtype=bool)
    for name, relation, detail in parts:
        handoff = handoff.applied(name, "compiler", detail)
        mask = mask & relation
        if name == "key_valid":
            handoff = replace(handoff, key_valid=describe_validity(relation[:, 0, 0, :]))
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


def _tree(parents: Sequence[int] | np.ndarray, shape: tuple[int, int, int, int], places: Places) -> np.ndarray:
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


def _one_causal_region(asked: Mapping[str, bool]) -> None:
    both = [name for name, is_asked in asked.items() if is_asked]
    if len(both) > 1:
        reason = {
            "prefix_length": "a prefix is a causal region of its own, and a separate causal flag hides prefix keys "
            "from earlier prefix queries",
            "parents": "a tree orders its candidates by ancestry, and a second order hides or reveals others",
        }[both[1]]
        raise VisibilityError(f"{both[0]} together with {both[1]}: {reason}; leave {both[0]} out")


def _no_order_across(asked: Mapping[str, bool]) -> None:
    for name, is_asked in asked.items():
        if is_asked:
            raise VisibilityError(
                f"{name} with cross_attention: queries and keys are different sequences and share no positions; "
                "restrict memory by key_valid, segments or a predicate in `extra`"
            )


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


def _predicate(name: str, relation: np.ndarray, shape: tuple[int, int, int, int]) -> np.ndarray:
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
