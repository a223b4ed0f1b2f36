"""The self-check: on this machine, planted bugs must be refuted and the reference must not be.

Each planted bug is the numpy reference with one change to the call it is given or to what it returns, and names
the property that must refute it within a few generated calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from attnspec.certify.claims import Capabilities
from attnspec.certify.conventions.program import Program
from attnspec.certify.observation import Observation
from attnspec.certify.subject import Subject
from attnspec.certify.subjects.numpy_reference import NumpyReference
from attnspec.certify.trials import Held, check, registered
from attnspec.pyspec import AttentionCall, Ledger
from attnspec.pyspec.calls.cut import with_explicit_mask
from attnspec.pyspec.calls.formats import round_to
from attnspec.pyspec.visibility import lower_right, upper_left
from attnspec.strategies import PROFILES, Features, call_at, small
from attnspec.strategies.derived import with_mask

CASES = 40

OnCall = Callable[[AttentionCall], AttentionCall]
OnTensors = Callable[[AttentionCall, dict[str, np.ndarray]], dict[str, np.ndarray]]


@dataclass(frozen=True)
class PlantedBug:
    """A wrong kernel: its name, the property that must refute it, and the change that makes it wrong."""

    name: str
    refuted_by: str
    on_call: OnCall | None = None
    on_tensors: OnTensors | None = None


@dataclass(frozen=True)
class Planted:
    """The numpy reference with a planted bug, as a subject."""

    bug: PlantedBug
    device: str = "cpu"

    @property
    def name(self) -> str:
        return f"planted:{self.bug.name}"

    @property
    def capabilities(self) -> Capabilities:
        return NumpyReference().capabilities

    def identity(self) -> dict[str, str]:
        return NumpyReference().identity()

    def ledger(self, dtype: str) -> Ledger:
        return NumpyReference().ledger(dtype)

    def run(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Observation:
        asked = self.bug.on_call(call) if self.bug.on_call else call
        seen = NumpyReference().run(asked, raw)
        if self.bug.on_tensors is None:
            return seen
        return replace(seen, tensors=self.bug.on_tensors(call, dict(seen.tensors)))

    def program(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Program:
        return NumpyReference().program(call, raw)


def _polarity(call: AttentionCall) -> AttentionCall:
    return with_mask(call, ~call.visible)


def _lower_right(call: AttentionCall) -> AttentionCall:
    a = call.axes
    if (call.visible == upper_left(a.queries, a.keys)).all():
        return with_mask(call, np.broadcast_to(lower_right(a.queries, a.keys), call.score_shape))
    return call


def _last_key_dropped(call: AttentionCall) -> AttentionCall:
    return with_mask(call, call.visible & (np.arange(call.axes.keys) < call.axes.keys - 1))


def _scale_twice(call: AttentionCall) -> AttentionCall:
    return call.but(scale=call.scale_value * call.scale_value)


def _bias_dropped(call: AttentionCall) -> AttentionCall:
    return call if call.bias is None else call.but(bias=np.zeros_like(call.bias))


def _head_map_modulo(call: AttentionCall) -> AttentionCall:
    heads = max(call.axes.key_heads, 1)
    return call.but(head_map=tuple(h % heads for h in range(call.axes.query_heads)))


def _first_mask_row(call: AttentionCall) -> AttentionCall:
    if call.axes.queries == 0:
        return call
    return with_mask(with_explicit_mask(call), np.repeat(call.visible[:, :, :1], call.axes.queries, axis=2))


def _scaled(name: str, factor: float) -> OnTensors:
    def change(call: AttentionCall, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if name in tensors:
            tensors[name] = round_to(call.dtype, tensors[name] * factor)
        return tensors

    return change


def _mean_on_empty_rows(call: AttentionCall, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    if call.axes.keys:
        mean = call.value.mean(axis=2, keepdims=True)[:, list(call.head_map)]
        empty = ~call.visible.any(-1, keepdims=True)
        tensors["output"] = np.where(empty, round_to(call.dtype, mean), tensors["output"])
    return tensors


def _one_precision_lower(call: AttentionCall, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    lower = {"float64": "float32", "float32": "bfloat16"}.get(call.dtype, call.dtype)
    return {n: round_to(lower, t) if n == "output" else t for n, t in tensors.items()}


def _base_two(call: AttentionCall, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {n: t / np.log(2.0) if n == "lse" else t for n, t in tensors.items()}


PLANTED = (
    PlantedBug("mask polarity flipped", "forward-agreement", on_call=_polarity),
    PlantedBug("lower right for upper left", "causal-alignment", on_call=_lower_right),
    PlantedBug("last key dropped", "forward-agreement", on_call=_last_key_dropped),
    PlantedBug("last key dropped, by counting", "counting-probe", on_call=_last_key_dropped),
    PlantedBug("scale applied twice", "scale", on_call=_scale_twice),
    PlantedBug("bias ignored", "forward-agreement", on_call=_bias_dropped),
    PlantedBug("head map modulo", "head-map", on_call=_head_map_modulo),
    PlantedBug("first mask row for all", "row-separation", on_call=_first_mask_row),
    PlantedBug("mean of values on empty rows", "empty-rows", on_tensors=_mean_on_empty_rows),
    PlantedBug("output rounded once too often", "forward-agreement", on_tensors=_one_precision_lower),
    PlantedBug("LSE in base two", "lse-agreement", on_tensors=_base_two),
    PlantedBug("query gradient doubled", "gradient-agreement", on_tensors=_scaled("grad_query", 2.0)),
    PlantedBug("key gradient missing", "jvp-backward-pairing", on_tensors=_scaled("grad_key", 0.0)),
    PlantedBug("value gradient three percent off", "value-gradient-conserved", on_tensors=_scaled("grad_value", 1.03)),
    PlantedBug("bias gradient negated", "gradient-agreement", on_tensors=_scaled("grad_bias", -1.0)),
)


@dataclass(frozen=True)
class SelfCheckRow:
    """One planted bug (or the reference): was it refuted, and after how many cases."""

    name: str
    prop: str
    refuted: bool
    expected: bool
    cases: int

    @property
    def ok(self) -> bool:
        """Did the checker say what it must?"""
        return self.refuted == self.expected


@dataclass(frozen=True)
class SelfCheckReport:
    """All rows of a self-check."""

    rows: tuple[SelfCheckRow, ...]

    @property
    def ok(self) -> bool:
        """Did every row come out as it must?"""
        return all(row.ok for row in self.rows)


def run_selfcheck(profile: str = "smoke", seed: int = 0, dtype: str = "float32") -> SelfCheckReport:
    """Refute every planted bug and none of the reference, on generated calls of that profile and seed."""
    features = Features(dtypes=(dtype,), any_head_map=False, dropout_multiplier=False)
    rows = [_hunt(Planted(bug), bug.name, bug.refuted_by, True, profile, seed, features) for bug in PLANTED]
    for prop in dict.fromkeys(bug.refuted_by for bug in PLANTED):
        rows.append(_hunt(NumpyReference(), "the reference itself", prop, False, profile, seed, features))
    return SelfCheckReport(tuple(rows))


def _hunt(
    subject: Subject,
    name: str,
    prop_id: str,
    expected: bool,
    profile: str,
    seed: int,
    features: Features,
) -> SelfCheckRow:
    prop = registered()[prop_id]
    held = Held(subject, subject.ledger)
    sizes = small(PROFILES[profile])
    limit = CASES if expected else CASES // 4
    for index in range(limit):
        call = prop.prepare(call_at(seed, index, sizes, features))
        if call is not None and check(prop, call, held).outcome.refuted:
            return SelfCheckRow(name, prop_id, True, expected, index + 1)
    return SelfCheckRow(name, prop_id, False, expected, limit)
