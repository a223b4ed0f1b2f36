"""What a campaign is made of. Tests replace a part; commands use `default_parts()`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from attnspec.certify.claims import Capabilities
from attnspec.certify.evidence.certificate import ProofRecord, SelfCheckRecord
from attnspec.certify.evidence.proofs import proof_state
from attnspec.certify.subject import Subject
from attnspec.certify.trials.property import Property
from attnspec.pyspec import AttentionCall

REFERENCE = "numpy-reference"


@dataclass(frozen=True)
class Parts:
    """The outside world of a campaign.

    load: a subject by name and device. foreign: is it somebody's own code, to be isolated? fresh: the subject in
    a new process, given a time limit for each call. call_at: (seed, index, profile, capabilities, dtype, small) ->
    call, a pure function. traits: what edge classes a call is in. reduce: (call, fails, budget) -> a smaller call
    that still fails, after at most that many tries. self_check: (profile, seed) ->
    report. reference: a subject that is right, or None. proofs: what is known about the theorems.
    """

    load: Callable[[str, str], Subject]
    foreign: Callable[[str], bool]
    fresh: Callable[[str, str, float], Subject]
    properties: Callable[[], Mapping[str, Property]]
    call_at: Callable[[int, int, str, Capabilities, str, bool], AttentionCall]
    traits: Callable[[AttentionCall], frozenset[str]]
    reduce: Callable[[AttentionCall, Callable[[AttentionCall], bool], int], AttentionCall]
    self_check: Callable[[str, int], SelfCheckRecord]
    reference: Callable[[], Subject | None]
    proofs: Callable[[], ProofRecord]


def default_parts() -> Parts:
    """The real parts, imported when first used: naming them must not load torch."""
    return Parts(
        load=_load,
        foreign=_foreign,
        fresh=_fresh,
        properties=_properties,
        call_at=_call_at,
        traits=_traits,
        reduce=_reduce,
        self_check=_self_check,
        reference=_reference,
        proofs=proof_state,
    )


def _load(spec: str, device: str) -> Subject:
    from attnspec.certify.subjects import load_subject

    return load_subject(spec, device)


def _foreign(spec: str) -> bool:
    from attnspec.certify.subjects import is_foreign

    return is_foreign(spec)


def _fresh(spec: str, device: str, timeout: float) -> Subject:
    from attnspec.certify.subjects.isolate import IsolatedSubject

    return IsolatedSubject(spec, device, timeout=timeout)


def _properties() -> Mapping[str, Property]:
    from attnspec.certify.trials import registered

    return registered()


def _call_at(seed: int, index: int, profile: str, claims: Capabilities, dtype: str, small: bool) -> AttentionCall:
    from attnspec import strategies

    chosen = strategies.PROFILES[profile]
    return strategies.call_at(seed, index, strategies.small(chosen) if small else chosen, features_of(claims, dtype))


def features_of(claims: Capabilities, dtype: str):  # type: ignore[no-untyped-def]
    """What may be drawn for a subject that claims this much, at one dtype (a strategies.Features)."""
    from attnspec import strategies

    return strategies.features_of(claims, dtype)


def _traits(call: AttentionCall) -> frozenset[str]:
    import numpy as np

    from attnspec import strategies

    with np.errstate(all="ignore"):
        return strategies.traits(call)


def _reduce(call: AttentionCall, fails: Callable[[AttentionCall], bool], budget: int) -> AttentionCall:
    from attnspec import strategies

    return strategies.reduce_call(call, fails, budget)


def _self_check(profile: str, seed: int) -> SelfCheckRecord:
    from attnspec.certify.campaign.selfcheck import run_selfcheck

    report = run_selfcheck(profile, seed)
    planted = [row for row in report.rows if row.expected]
    return SelfCheckRecord(
        passed=report.ok,
        caught=[row.name for row in planted if row.refuted],
        missed=[row.name for row in planted if not row.refuted],
        lines=[f"{row.name} is refuted by {row.prop}" for row in report.rows if row.refuted and not row.expected],
    )


def _reference() -> Subject | None:
    return _load(REFERENCE, "cpu")
