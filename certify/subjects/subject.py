"""Subjects: what is certified. Anything that runs an `AttentionCall` and states its numerics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

import numpy as np

from attnspec.pyspec import AttentionCall, Ledger
from attnspec.pyspec.calls.call import LAYOUTS, MASK_ENCODINGS
from attnspec.pyspec.heads import is_grouped

if TYPE_CHECKING:
    from attnspec.certify.conventions.program import Program


@dataclass(frozen=True)
class Capabilities:
    """What a subject claims to support. A cell outside the claim is listed as not covered, never as passed.

    bias: a finite additive bias; bias_gradient: its gradient. value_width_differs: value_width ≠ key_width.
    grouped_heads: equal groups; any_head_map: arbitrary head maps. dropout_multiplier: a realised multiplier
    can be passed. returns_lse: LSE is returned. empty_rows: rows without a visible key follow the zero policy.
    isolates_poison: NaN and infinities in keys and values that nobody sees stay without effect.
    any_scale: a scale other than the default may be given. empty_row_contract: where empty_rows is not claimed, what
    rows without a visible key are known to come out as instead: "mean_of_values" or "nan" (masks.policies).
    deterministic: the same call gives the same bits again. refuses_meaningless: types, lengths, widths, batches or
    heads that do not fit one another raise an exception.
    softcap: scores may be capped to c tanh(s / c) before the bias. sink: a logit per query head without a value.
    slopes: ALiBi slopes, one a query head, times the distance that is |i + K - Q - j|.
    """

    dtypes: tuple[str, ...] = ("float32",)
    devices: tuple[str, ...] = ("cpu",)
    encodings: tuple[str, ...] = MASK_ENCODINGS
    layouts: tuple[str, ...] = LAYOUTS
    gradients: bool = True
    bias: bool = True
    bias_gradient: bool = True
    value_width_differs: bool = True
    grouped_heads: bool = True
    any_head_map: bool = False
    dropout_multiplier: bool = False
    returns_lse: bool = False
    empty_rows: bool = True
    zero_sizes: bool = True
    any_scale: bool = True
    isolates_poison: bool = False
    deterministic: bool = False
    refuses_meaningless: bool = False
    empty_row_contract: str | None = None
    softcap: bool = False
    sink: bool = False
    slopes: bool = False


@dataclass(frozen=True)
class Skip:
    """Why nothing was tested.

    kind: "not_claimed" (outside what the subject claims), "known_divergence" (listed by the subject), "no_such_call"
    (the property does not speak of the call). feature: what is not claimed, the divergence's name, or "". text: for
    people.
    """

    kind: Literal["not_claimed", "known_divergence", "no_such_call"]
    feature: str
    text: str


@dataclass(frozen=True, eq=False)
class Observation:
    """What one run of a subject returned.

    tensors: float64 copies by the names of attnspec.pyspec.TENSORS (those the subject has); dtypes and devices: of the
    tensors as returned; kernel: the kernel seen to run, or "unobserved"; changed_inputs: inputs that the
    subject overwrote; error: what it raised, if it did; ending: how it failed then, "raised", "died" (its process
    ended) or "timeout" (no answer came).
    """

    tensors: Mapping[str, np.ndarray] = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)
    devices: Mapping[str, str] = field(default_factory=dict)
    kernel: str = "unobserved"
    changed_inputs: tuple[str, ...] = ()
    error: str | None = None
    ending: Literal["raised", "died", "timeout"] = "raised"


@runtime_checkable
class Subject(Protocol):
    """The contract of a subject. Implementations are cheap to make and import their library lazily."""

    @property
    def name(self) -> str:
        """Registered name, or the path it was loaded from."""
        ...

    @property
    def device(self) -> str:
        """Device the subject runs on: "cpu", "cuda", ..."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What it claims to support."""
        ...

    def identity(self) -> dict[str, str]:
        """What exactly this is: library versions, kernel, source digest, device name."""
        ...

    def ledger(self, dtype: str) -> Ledger:
        """The numerics it declares for that storage dtype."""
        ...

    def run(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Observation:
        """Run forward, and backward when the call has a grad_output.

        `raw` replaces query, key or value by arrays that need not be finite (poison tests), nor of the call's shapes,
        nor of its type (refusals): float64 arrays are stored in the call's dtype, others in their own.
        An exception of the kernel is returned in `Observation.error`, not raised.
        """
        ...

    # Optional: stages(call) -> dict[str, ndarray], named as in pyspec.oracle.trace.STAGES, for `certify explain`.

    def program(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Program:
        """That run as statements, through the subject's public interface only."""
        ...


@dataclass(frozen=True)
class KnownDivergence:
    """Calls on which a subject is known to be wrong: named, explained, left out of its claim, never passed.

    A subject lists them in an attribute `known_divergences`; `finding` names the entry in docs/FINDINGS.md.
    """

    name: str
    reason: str
    finding: str
    meets: Callable[[AttentionCall], bool]


def uncovered(subject: Subject, call: AttentionCall) -> str | None:
    """Why the subject does not claim to support this call, or None when it does."""
    known: tuple[KnownDivergence, ...] = getattr(subject, "known_divergences", ())
    for divergence in known:
        if divergence.meets(call):
            return f"known divergence {divergence.name}: {divergence.reason} ({divergence.finding})"
    c = subject.capabilities
    a = call.axes
    visible = call.visible
    reasons = (
        (call.dtype not in c.dtypes, f"dtype {call.dtype}"),
        (call.encoding not in c.encodings, f"mask encoding {call.encoding}"),
        (call.grad_output is not None and not c.gradients, "gradients"),
        (call.bias is not None and not c.bias, "bias"),
        (a.key_width != a.value_width and not c.value_width_differs, "value width ≠ key width"),
        (not c.grouped_heads and call.head_map != tuple(range(a.query_heads)), "grouped heads"),
        (not c.any_head_map and not is_grouped(call.head_map, a.key_heads), "arbitrary head maps"),
        (call.dropout is not None and not c.dropout_multiplier, "a realised dropout multiplier"),
        (a.any_zero and not c.zero_sizes, "zero sizes"),
        (bool((~visible.any(-1)).any()) and not c.empty_rows, "empty rows"),
        (call.scale is not None and not c.any_scale, "a scale other than the default"),
        (call.softcap is not None and not c.softcap, "softcap"),
        (call.sink is not None and not c.sink, "an attention sink"),
        (call.slopes is not None and not c.slopes, "ALiBi slopes"),
        (
            any(getattr(call.layout, n) not in c.layouts for n in ("query", "key", "value")),
            "one of the memory layouts",
        ),
    )
    return next((f"{what} not claimed by {subject.name}" for hit, what in reasons if hit), None)
