"""The trace: every stage of one call as a named array, its rows and columns labelled by identity.

Rows and columns keep their names through every stage: row i of a score is query i, column j is key j, and before the
value product key row j and value row j must be the same source. Only what is declared as metadata (mask, bias,
multiplier) is ever broadcast; query, key and value never are. A trace is an instrument for small calls: it holds
every [B, Hq, Q, K] matrix.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from attnspec.pyspec.arrays import ArrayDomain
from attnspec.pyspec.calls.call import AttentionCall, CallError
from attnspec.pyspec.domains.float64 import Float64Domain
from attnspec.pyspec.domains.recording import recording
from attnspec.pyspec.evaluate import evaluate
from attnspec.pyspec.sink import extended

SINK = "sink"
_SCORES = ("batch", "head", "query", "key")
_COLUMN = ("batch", "head", "query", "")
_OUTPUT = ("batch", "head", "query", "value feature")

# Stages in the order of computation, with what each axis counts.
STAGES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("dot", "scaled", "capped", "biased", "masked"), _SCORES),
    "row_max": _COLUMN,
    **dict.fromkeys(("shifted", "exp"), _SCORES),
    "denominator": _COLUMN,
    **dict.fromkeys(("weights", "multiplier", "consumed"), _SCORES),
    "output": _OUTPUT,
    "lse": _COLUMN,
    **dict.fromkeys(("consumed_grad", "weights_grad"), _SCORES),
    "delta": _COLUMN,
    **dict.fromkeys(("scores_grad", "capped_grad", "scaled_grad"), _SCORES),
    "grad_query": ("batch", "head", "query", "feature"),
    "grad_key": ("batch", "key head", "key", "feature"),
    "grad_value": ("batch", "key head", "key", "value feature"),
    "grad_bias": _SCORES,
    "grad_sink": ("head",),
    "grad_slopes": ("head",),
}
# What stands at a hidden key in these stages reaches nothing.
BEFORE_MASK = ("dot", "scaled", "capped", "biased", "multiplier", "consumed_grad", "weights_grad")


class TraceError(CallError):
    """Labels that contradict each other, or traces of different rows."""


@dataclass(frozen=True, eq=False)
class Trace:
    """Stages of one call by name (see STAGES), read-only, in the numbers of one domain.

    query_ids, key_ids: names of query and key rows; with a sink the last key is SINK. row_max is what was subtracted
    before exp: the largest visible score, or zero in a domain that subtracts nothing. masked and shifted are -inf
    where a key is hidden. weights are those before dropout, consumed those after it. stored: shapes in which the
    declared metadata was given, before it was broadcast.
    """

    call: AttentionCall
    domain: str
    stages: Mapping[str, np.ndarray]
    visible: np.ndarray
    query_ids: tuple[str, ...]
    key_ids: tuple[str, ...]
    stored: Mapping[str, tuple[int, ...]]

    def __getitem__(self, stage: str) -> np.ndarray:
        try:
            return self.stages[stage]
        except KeyError:
            raise TraceError(f"stage = {stage!r}: this trace has {', '.join(self.stages)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.stages)

    def label(self, stage: str, index: Sequence[int]) -> str:
        """One entry by identity, such as "weights [batch 0, head 1, query 2 → key 3]"."""
        names: dict[str, Sequence[str]] = {"query": self.query_ids, "key": self.key_ids}
        parts = []
        for kind, at in zip(STAGES[stage], index, strict=True):
            if kind:
                parts.append(names[kind][at] if kind in names else f"{kind} {at}")
        if STAGES[stage] == _SCORES:
            parts[2:] = [f"{parts[2]} → {parts[3]}"]
        return f"{stage} [{', '.join(parts)}]"


@dataclass(frozen=True)
class Difference:
    """Where two traces part first: the stage, the entry in the first trace, its label, and both numbers."""

    stage: str
    index: tuple[int, ...]
    label: str
    first: Any
    second: Any


def trace(
    call: AttentionCall,
    domain: ArrayDomain | None = None,
    *,
    query_ids: Sequence[str] | None = None,
    key_ids: Sequence[str] | None = None,
    value_ids: Sequence[str] | None = None,
) -> Trace:
    """Every stage of the call in a domain (default float64).

    key_ids and value_ids name the sources of the key rows and of the value rows; they must be equal row by row, so
    that reordering one without the other is a TraceError. Without names, rows are "query 0", "key 0", ...
    """
    dom = domain or Float64Domain()
    wide = extended(call)
    visible = np.asarray(wide.visible)
    recorded, found = recording(dom)
    tensors = evaluate(recorded, call, with_lse=dom.has_logarithm)
    scores = found["biased"]
    found.setdefault("row_max", dom.lift(np.zeros((*scores.shape[:-1], 1))))
    found["masked"] = hidden_at_minus_infinity(visible, scores)
    found["shifted"] = hidden_at_minus_infinity(visible, scores - found["row_max"])
    z = np.ones((1, 1, 1, 1)) if wide.multiplier is None else wide.multiplier
    found["multiplier"] = np.broadcast_to(dom.lift(z), scores.shape)
    if "weights_grad" in found:
        found["delta"] = dom.sum_axis("delta", found["weights"] * found["weights_grad"], -1)
    found |= {name: tensor for name, tensor in tensors.items() if name not in found}
    return sealed(call, dom, found, visible, query_ids, key_ids, value_ids)


def hidden_at_minus_infinity(visible: np.ndarray, s: np.ndarray) -> np.ndarray:
    """The scores, -inf where hidden."""
    out = s.copy()
    out[~visible] = float("-inf")
    return out


def sealed(
    call: AttentionCall,
    dom: ArrayDomain,
    stages: Mapping[str, np.ndarray],
    visible: np.ndarray,
    query_ids: Sequence[str] | None = None,
    key_ids: Sequence[str] | None = None,
    value_ids: Sequence[str] | None = None,
) -> Trace:
    """A trace of read-only copies in the order of STAGES, its labels checked."""
    a = call.axes
    queries, keys, values = (
        _names(kind, given, n)
        for kind, given, n in (
            ("query", query_ids, a.queries), ("key", key_ids, a.keys), ("value", value_ids or key_ids, a.keys)
        )
    )  # fmt: skip
    if value_ids is None and key_ids is not None:
        raise TraceError("value_ids: expected the names of the value rows beside those of the key rows")
    for j, (key, value) in enumerate(zip(keys, values, strict=True)):
        if key != value and value_ids is not None:
            raise TraceError(
                f"key row {j} is {key!r} and value row {j} is {value!r}: they must be one source; "
                "reorder key and value rows together"
            )
    frozen = {}
    for name in STAGES:
        if name in stages:
            frozen[name] = np.array(stages[name])
            frozen[name].flags.writeable = False
    shown = np.array(visible)
    shown.flags.writeable = False
    given = {"mask": call.visibility.mask, "bias": call.bias}
    given["multiplier"] = None if call.dropout is None else call.dropout.multiplier
    stored = {n: array.shape for n, array in given.items() if array is not None}
    if call.sink is not None:
        keys = (*keys, SINK)
    return Trace(call, dom.name, MappingProxyType(frozen), shown, queries, keys, MappingProxyType(stored))


def _names(kind: str, given: Sequence[str] | None, count: int) -> tuple[str, ...]:
    names = tuple(f"{kind} {i}" for i in range(count)) if given is None else tuple(given)
    if len(names) != count:
        raise TraceError(f"{kind}_ids has {len(names)} names: expected one for each of {count} rows")
    if len(set(names)) != count:
        raise TraceError(f"{kind}_ids names a row twice: {', '.join(names)}")
    return names


def first_difference(a: Trace, b: Trace, allowed: Mapping[str, np.ndarray] | None = None) -> Difference | None:
    """The first stage and entry in which b parts from a, its rows and columns matched to a's by name; or None.

    allowed: absolute differences by stage, of a's shape (default: none at all). What hidden keys score is not
    compared. Raises TraceError when the traces do not name the same rows.
    """
    order = {"query": _order("query", a.query_ids, b.query_ids), "key": _order("key", a.key_ids, b.key_ids)}
    order["key head"], seen = None, a.visible
    for stage in a:
        if stage not in b.stages:
            continue
        left, right = a[stage], b[stage]
        for axis, kind in enumerate(STAGES[stage]):
            index = order.get(kind)
            if index is not None and left.shape[axis] == right.shape[axis] and left.shape[axis] > 1:
                # Gradients of keys leave the sink out, which is always last.
                right = np.take(right, index[: right.shape[axis]], axis=axis)
        if left.shape != right.shape:
            raise TraceError(f"stage {stage} has shapes {list(left.shape)} and {list(right.shape)}")
        apart = _apart(left, right, None if allowed is None else allowed.get(stage))
        if stage in BEFORE_MASK:
            apart = apart & seen
        if apart.any():
            at = tuple(int(n) for n in np.argwhere(apart)[0])
            return Difference(stage, at, a.label(stage, at), left[at], right[at])
    return None


def _order(kind: str, ours: tuple[str, ...], theirs: tuple[str, ...]) -> np.ndarray | None:
    if set(ours) != set(theirs):
        raise TraceError(f"the traces name different {kind} rows: {', '.join(ours)} and {', '.join(theirs)}")
    return None if ours == theirs else np.array([theirs.index(name) for name in ours], dtype=np.intp)


def _apart(left: np.ndarray, right: np.ndarray, allowed: np.ndarray | None) -> np.ndarray:
    if allowed is None:
        return np.asarray(left != right, dtype=bool)
    with np.errstate(all="ignore"):
        near = np.abs(np.asarray(left - right, dtype=np.float64)) <= allowed
    return np.asarray(~(near | (left == right)), dtype=bool)
