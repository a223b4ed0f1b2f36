"""What a property is: a claim, the theorem it rests on, and a check of one call on one subject."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import ParamSpec

import numpy as np

from attnspec.certify.properties.order import in_order
from attnspec.certify.subjects.subject import Capabilities, Observation, Skip, Subject, uncovered
from attnspec.pyspec import AttentionCall, Judgement, Ledger, Oracle, bounds
from attnspec.pyspec.calls.fingerprint import fingerprint

View = Callable[[np.ndarray], np.ndarray]
P = ParamSpec("P")


@dataclass(frozen=True)
class Outcome:
    """Result of one check. `skipped` says why nothing was tested; `broken` states what failed without numbers.

    `vacuous` names tensors whose bound was so wide that the check says nothing: they count as not tested.
    """

    judgements: tuple[Judgement, ...] = ()
    broken: str | None = None
    skipped: str | Skip | None = None
    vacuous: tuple[str, ...] = ()
    kernel: str = "unobserved"

    @property
    def refuted(self) -> bool:
        """Did the subject break the claim?"""
        return self.broken is not None or any(not j.inside for j in self.judgements)

    @property
    def worst(self) -> Judgement | None:
        """The judgement with the largest error ÷ bound, refuted ones first."""
        return max(self.judgements, key=lambda j: (not j.inside, j.worst), default=None)


class Settled(Exception):
    """What a check came to before its end; `outcome` is then its result."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.skipped or outcome.broken)
        self.outcome = outcome


@dataclass
class Bench:
    """A subject on the bench with the ledger it is held to. Oracles and bounds of the last calls are kept."""

    subject: Subject
    ledger_for: Callable[[str], Ledger]
    device: str = "cpu"
    _oracles: dict[int, tuple[AttentionCall, Oracle]] = field(default_factory=dict)

    def oracle(self, call: AttentionCall) -> Oracle:
        """The oracle of a call."""
        kept = self._oracles.get(id(call))
        if kept is not None and kept[0] is call:
            return kept[1]
        if len(self._oracles) >= 8:
            self._oracles.clear()
        oracle = Oracle(call)
        self._oracles[id(call)] = (call, oracle)
        return oracle

    def bounds(self, call: AttentionCall) -> dict[str, np.ndarray]:
        """Allowed error of every tensor under the ledger in force."""
        return bounds(call, self.ledger_for(call.dtype))

    def observe(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Observation:
        """Run the subject."""
        return self.subject.run(call, raw)

    def uncovered(self, call: AttentionCall) -> Skip | None:
        """Why the subject does not claim this call."""
        return uncovered(self.subject, call)


def call_rng(call: AttentionCall, purpose: str) -> np.random.Generator:
    """Random numbers that depend on nothing but the call and a purpose, so that a replay draws the same."""
    digest = hashlib.sha256(purpose.encode() + fingerprint(call)).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "little"))


Check = Callable[[AttentionCall, Bench], Outcome]
Prepare = Callable[[AttentionCall], "AttentionCall | None"]


def _as_it_is(call: AttentionCall) -> AttentionCall:
    return call


def _always(_: Capabilities) -> Skip | None:
    return None


@dataclass(frozen=True)
class Property:
    """One claim about every subject.

    id: stable, kebab-case. claim: one sentence. theorem: headline in AttnProofs that licenses the check, or
    None where the claim is about floating point or the interface (`basis` then says what it rests on).
    check: predicate over (call, bench). prepare: turns a generated call into one that the claim is about, or
    None when it cannot. needs: reason why a subject cannot be held to it, or None. small: draw small shapes,
    for checks that run the subject several times. catches: public reports of the kind it would have caught.
    also: further headline theorems that the check or its oracle leans on. modifiers: the claim holds of calls with a
    softcap or a sink as well; the others are asked of the call without them.
    """

    id: str
    claim: str
    theorem: str | None
    check: Check
    prepare: Prepare = _as_it_is
    needs: Callable[[Capabilities], Skip | None] = _always
    basis: str = ""
    small: bool = False
    catches: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    modifiers: bool = False


def to_its_end(check: Callable[P, Outcome]) -> Callable[P, Outcome]:
    """The check, with an outcome reached early as its result; also for a part of a check whose other parts count."""

    @wraps(check)
    def checked(*args: P.args, **kwargs: P.kwargs) -> Outcome:
        try:
            return check(*args, **kwargs)
        except Settled as early:
            return early.outcome

    return checked


def _unmodified(prepare: Prepare) -> Prepare:
    """Prepare the call without its softcap and sink."""

    def prepared(call: AttentionCall) -> AttentionCall | None:
        if call.softcap is not None or call.sink is not None:
            origin = {n: "none" if n in ("softcap", "sink") else label for n, label in call.origin.items()}
            call = call.but(softcap=None, sink=None, origin=origin)
        return prepare(call)

    return prepared


# Registration happens at import of attnspec.certify.properties.
_REGISTRY: dict[str, Property] = {}


def register(prop: Property) -> Property:
    """Add a property; ids are unique."""
    if prop.id in _REGISTRY:
        raise ValueError(f"property {prop.id!r} is registered twice")
    if prop.theorem is None and not prop.basis:
        raise ValueError(f"property {prop.id!r} names no theorem: say in `basis` what it rests on")
    prop = replace(prop, check=to_its_end(prop.check))
    if not prop.modifiers:
        prop = replace(prop, prepare=_unmodified(prop.prepare))
    _REGISTRY[prop.id] = prop
    return prop


def registered() -> dict[str, Property]:
    """All properties by id, those that refute most wrong kernels first (attnspec.certify.properties.order)."""
    return {name: _REGISTRY[name] for name in in_order(_REGISTRY)}
