"""The feature table: every part of a call once.

What walks over all parts of a call (its check, freezing, JSON, fingerprint, cutting, reduction, text, and what of it
a subject claims) reads this table. A new feature is a field of `CallFields` and a row here, with its spec.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attnspec.pyspec.calls.fields import (
    EMPTY_ROW_POLICIES,
    LAYOUTS,
    MASK_ENCODINGS,
    MASK_LAYOUTS,
    RETURNED_WEIGHTS,
    CallFields,
)
from attnspec.pyspec.calls.formats import FORMATS
from attnspec.pyspec.calls.score import FAMILIES, ZERO_NORM_POLICIES, Dot
from attnspec.pyspec.heads import is_grouped

SCORES = ("batch", "query_heads", "queries", "keys")


@dataclass(frozen=True)
class Part:
    """One stored item of a call.

    path: its name, "softcap", or "dropout.multiplier" where records stand in between. kind: "numbers" (float64 array of
    values of the call's dtype), "reals" (any finite float64 array), "bits" (boolean array), "number" (float), "whole"
    (int), "switch" (bool), "name" (one of `options`, or any text), "heads" (a key head for each query head) or "labels"
    (texts by name).
    axes: of an array, as named in `fields.Axes`, or other names for axes of its own. shared: those along which length 1
    stands for every position. holds, expected: what a value must satisfy besides, and in words.
    """

    path: str
    kind: str
    axes: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    holds: Callable[[Any], bool] | None = None
    expected: str = ""

    @property
    def root(self) -> str:
        """The field of the call that holds it."""
        return self.path.partition(".")[0]

    @property
    def is_array(self) -> bool:
        """Is it an array?"""
        return self.kind in ("numbers", "reals", "bits")

    def of(self, call: CallFields) -> Any:
        """What the call says here, or None where it has no such part."""
        return at(call, self.path)


def at(call: CallFields, path: str) -> Any:
    """What stands at a path, or None where the call has nothing there."""
    root, _, leaf = path.partition(".")
    value = getattr(call, root)
    return getattr(value, leaf, None) if leaf else value


@dataclass(frozen=True)
class Feature:
    """What a call may have.

    words: its name in a sentence. parts: where it is stored; what is read off other parts has none. optional: the path
    that holds `absent` where a call has it not ("": every call has it). present: does the call have it, where the path
    alone does not tell. keyword: the argument by which functions take it.
    claim: the field of a subject's Capabilities that claims it, a bool; with `names`, a list that must hold all these
    names of the call. is_label: it says where a call comes from, and changes no result. differentiated: it may have a
    gradient, a tensor "grad_" and its name. is_modifier: one number or array that changes
    the logits of dot products, in the field of its name.
    """

    name: str
    words: str
    parts: tuple[Part, ...] = ()
    optional: str = ""
    absent: Any = None
    present: Callable[[CallFields], bool] | None = None
    keyword: str = ""
    claim: str = ""
    names: Callable[[CallFields], tuple[str, ...]] | None = None
    is_label: bool = False
    differentiated: bool = False
    is_modifier: bool = False

    def of(self, call: CallFields) -> bool:
        """Does the call have it?"""
        if self.present is not None:
            return self.present(call)
        return not self.optional or at(call, self.optional) is not None


def _parameter(name: str, *axes: str) -> Part:
    return Part(f"score.{name}", "numbers", ("query_heads", *axes), shared=("query_heads",))


def _has_empty_row(call: CallFields) -> bool:
    return not call.visible.any(axis=-1).all()


FEATURES: tuple[Feature, ...] = (
    Feature("dtype", "dtype", (Part("dtype", "name", options=tuple(FORMATS)),), claim="dtypes",
            names=lambda c: (c.dtype,)),
    Feature("query", "query", (Part("query", "numbers", ("batch", "query_heads", "queries", "key_width")),),
            differentiated=True),
    Feature("key", "key", (Part("key", "numbers", ("batch", "key_heads", "keys", "key_width")),),
            differentiated=True),
    Feature("value", "value", (Part("value", "numbers", ("batch", "key_heads", "keys", "value_width")),),
            differentiated=True),
    Feature("head_map", "head map", (Part("head_map", "heads", ("query_heads",)),)),
    Feature("encoding", "mask encoding", (Part("encoding", "name", options=MASK_ENCODINGS),), claim="encodings",
            names=lambda c: (c.encoding,)),
    Feature("mask", "mask", (Part("visibility.mask", "bits", SCORES, shared=SCORES),)),
    Feature("query_valid", "queries marked as not real",
            (Part("visibility.query_valid", "bits", ("batch", "queries")),),
            optional="visibility.query_valid"),
    Feature("empty_row_policy", "policy for rows that see no key",
            (Part("visibility.empty_rows", "name", options=EMPTY_ROW_POLICIES),)),
    Feature("gradients", "gradients",
            (Part("grad_output", "numbers", ("batch", "query_heads", "queries", "value_width")),),
            optional="grad_output", claim="gradients"),
    Feature("bias", "an additive bias", (Part("bias", "numbers", SCORES, shared=SCORES),), optional="bias",
            claim="bias", differentiated=True),
    Feature("value_width", "a value width other than the key width",
            present=lambda c: c.axes.key_width != c.axes.value_width, claim="value_width_differs"),
    Feature("grouped_heads", "grouped heads",
            present=lambda c: c.head_map != tuple(range(c.axes.query_heads)), keyword="enable_gqa",
            claim="grouped_heads"),
    Feature("any_head_map", "arbitrary head maps",
            present=lambda c: not is_grouped(c.head_map, c.axes.key_heads), claim="any_head_map"),
    Feature("dropout", "a dropout multiplier that is given", (
        Part("dropout.probability", "number", holds=lambda p: 0.0 <= p < 1.0, expected="0 <= p < 1"),
        Part("dropout.multiplier", "reals", SCORES, SCORES, holds=lambda z: bool((z >= 0).all()),
             expected="numbers that are finite and not negative"),
        Part("dropout.training", "switch"),
        Part("dropout.returned_weights", "name", options=RETURNED_WEIGHTS),
    ), optional="dropout", claim="dropout_multiplier"),
    Feature("returned_weights", "returned weights",
            present=lambda c: c.dropout is not None and c.dropout.returned_weights != "none", claim="returns_weights"),
    Feature("own_dropout", "dropout that the subject draws", (
        Part("own_dropout.probability", "number", holds=lambda p: 0.0 <= p < 1.0, expected="0 <= p < 1"),
        Part("own_dropout.seed", "whole", holds=lambda n: n >= 0, expected="an integer of 0 or more"),
    ), optional="own_dropout", keyword="dropout_p", claim="samples_dropout"),
    Feature("zero_sizes", "zero lengths", present=lambda c: c.axes.any_zero, claim="zero_sizes"),
    Feature("empty_rows", "rows that see no key", present=_has_empty_row, claim="empty_rows"),
    Feature("scale", "a scale of one's own",
            (Part("scale", "number", expected="a finite float, or None for key_width ** -0.5"),), optional="scale",
            keyword="scale", claim="any_scale"),
    Feature("softcap", "a softcap",
            (Part("softcap", "number", holds=lambda c: c > 0.0, expected="a finite float above 0, or None for none"),),
            optional="softcap", keyword="softcap", claim="softcap", is_modifier=True),
    Feature("sink", "an attention sink", (Part("sink", "numbers", ("query_heads",)),), optional="sink",
            keyword="sink", claim="sink", differentiated=True, is_modifier=True),
    Feature("slopes", "ALiBi slopes", (Part("slopes", "numbers", ("query_heads",)),), optional="slopes",
            keyword="alibi_slopes", claim="slopes", differentiated=True, is_modifier=True),
    Feature("score", "score family", (
        Part("score.name", "name", options=FAMILIES),
        _parameter("metric", "key_width", "key_width"),
        _parameter("query_map", "hidden", "key_width"),
        _parameter("key_map", "hidden", "key_width"),
        _parameter("offset", "hidden"),
        _parameter("vector", "hidden"),
        Part("score.zero_norm", "name", options=ZERO_NORM_POLICIES),
        Part("score.epsilon", "number"),
    ), optional="score", absent=Dot(), present=lambda c: not isinstance(c.score, Dot), claim="families",
            names=lambda c: () if isinstance(c.score, Dot) else (c.score.name,)),
    Feature("layout", "memory layout", (
        *(Part(f"layout.{name}", "name", options=LAYOUTS) for name in ("query", "key", "value")),
        Part("layout.mask", "name", options=MASK_LAYOUTS),
    ), claim="layouts", names=lambda c: (c.layout.query, c.layout.key, c.layout.value)),
    Feature("backend", "backend",
            tuple(Part(f"backend.{name}", "name") for name in ("requested", "observed", "materialised_weights")),
            is_label=True),
    Feature("origin", "origin", (Part("origin", "labels"),), is_label=True),
)  # fmt: skip

BY_NAME: dict[str, Feature] = {feature.name: feature for feature in FEATURES}
PARTS: tuple[Part, ...] = tuple(part for feature in FEATURES for part in feature.parts)
DIFFERENTIATED: tuple[str, ...] = tuple(feature.name for feature in FEATURES if feature.differentiated)
MODIFIERS: tuple[str, ...] = tuple(feature.name for feature in FEATURES if feature.is_modifier)
BY_PATH: dict[str, Part] = {part.path: part for part in PARTS}


def stored(call: CallFields, *, labels: bool = True) -> Iterator[tuple[Part, Any]]:
    """Every part that the call has, with what it says there, in the order of the table; labels where wanted."""
    for feature in FEATURES:
        if feature.parts and (labels or not feature.is_label) and feature.of(call):
            for part in feature.parts:
                value = part.of(call)
                if value is not None:
                    yield part, value


def arrays(call: CallFields, *kinds: str) -> Iterator[tuple[Part, np.ndarray]]:
    """The call's arrays of these kinds (default: all)."""
    for part, value in stored(call, labels=False):
        if part.is_array and (not kinds or part.kind in kinds):
            yield part, value


def length(call: CallFields, axis: str) -> int:
    """The length of an axis of a part: one of the call's sizes, or the hidden width of an additive score."""
    if axis == "hidden":
        return int(getattr(call.score, "vector").shape[-1])  # noqa: B009, the other families have none
    return int(getattr(call.axes, axis))


def changed(call: CallFields, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the call in which the parts at these paths are replaced, by name."""
    fields: dict[str, Any] = {}
    for path, value in changes.items():
        root, _, leaf = path.partition(".")
        fields[root] = replace(fields.get(root, getattr(call, root)), **{leaf: value}) if leaf else value
    return fields
