"""`certify explain`: where a subject's numbers first leave what the spec and the ledger allow, on one call."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from attnspec.certify.campaign.identify import load
from attnspec.certify.campaign.parts import Parts
from attnspec.certify.errors import UsageError
from attnspec.certify.evidence.counterexample import find_counterexample, read_counterexample
from attnspec.certify.properties.agree import expected_tensors, failure
from attnspec.certify.properties.model import Bench
from attnspec.certify.subjects.isolate import IsolatedSubject
from attnspec.certify.subjects.subject import Subject
from attnspec.pyspec import AttentionCall, CallError, Judgement, Ledger, call_from_json
from attnspec.pyspec.calls.json import FORMAT, OLD_FORMATS
from attnspec.pyspec.oracle.stages import Leaving, first_leaving


@dataclass(frozen=True, eq=False)
class Asked:
    """What is to be explained: a call, the subject it is shown to, and the ledger (None: the subject's own)."""

    call: AttentionCall
    subject: str
    device: str
    isolated: bool | None
    ledger: Ledger | None
    about: str


@dataclass(frozen=True, eq=False)
class Explanation:
    """What came of it. judgements: one a tensor, in the order of computation; leaving: the first stage that leaves.

    skipped: why nothing was tested. broken: what failed before any number could be compared. shows_stages: has the
    subject shown any.
    """

    asked: Asked
    ledger: Ledger | None = None
    judgements: tuple[Judgement, ...] = ()
    broken: str | None = None
    skipped: str | None = None
    shows_stages: bool = False
    leaving: Leaving | None = None

    @property
    def refuted(self) -> bool:
        """Did anything leave?"""
        return self.broken is not None or self.leaving is not None or any(not j.inside for j in self.judgements)


def asked(name: str, subject: str | None, device: str | None, roots: tuple[Path, ...]) -> Asked:
    """What a name on the command line means: a counter-example's id or file, or a call's JSON file with a subject.

    Executes nothing. Raises UsageError when it is neither, or when a call comes without a subject.
    """
    path = find_counterexample(name, roots)
    try:
        raw = path.read_bytes()
        document = json.loads(raw)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot read it as JSON: {error}") from error
    if isinstance(document, dict) and document.get("format") in (FORMAT, *OLD_FORMATS):
        if subject is None:
            raise UsageError(f"{path}: a call names no subject: add --subject SPEC")
        try:
            return Asked(call_from_json(raw), subject, device or "cpu", None, None, path.name)
        except CallError as error:
            raise UsageError(f"{path}: {error}") from error
    record = read_counterexample(path)
    about = f"{record.id} to {record.property}"
    if subject is None or subject == record.subject:
        where = device or record.device
        return Asked(record.attention_call(), record.subject, where, record.isolated, record.held_to(), about)
    return Asked(record.attention_call(), subject, device or record.device, None, None, about)


def explain(one: Asked, parts: Parts) -> Explanation:
    """Run the call once and hold every tensor, and every stage the subject shows, to what is allowed there."""
    isolated = parts.foreign(one.subject) if one.isolated is None else one.isolated or parts.foreign(one.subject)
    subject = load(one.subject, one.device, isolated, parts)
    try:
        ledger = one.ledger or subject.ledger(one.call.dtype)
        bench = Bench(subject, lambda _: ledger, one.device)
        reason = bench.uncovered(one.call)
        if reason is not None:
            return Explanation(one, ledger, skipped=str(reason))
        seen = bench.observe(one.call)
        broken = failure(seen, one.call, bench)
        if broken is not None:
            return Explanation(one, ledger, broken=broken)
        oracle, allowed = bench.oracle(one.call), bench.bounds(one.call)
        names = expected_tensors(one.call, bench)
        judged = tuple(oracle.judge(n, seen.tensors[n], allowed[n]) for n in names)
        stages = shown_stages(subject, one.call)
        leaving = None if stages is None else _first(one.call, ledger, stages)
        return Explanation(one, ledger, judged, shows_stages=stages is not None, leaving=leaving)
    finally:
        if isinstance(subject, IsolatedSubject):
            subject.close()


def shown_stages(subject: Subject, call: AttentionCall) -> Mapping[str, np.ndarray] | None:
    """What the optional method `stages(call)` of a subject returns: arrays named as in pyspec.oracle.trace.STAGES."""
    method: Any = getattr(subject, "stages", None)
    if method is None:
        return None
    found = method(call)
    return None if found is None else {n: np.asarray(a, dtype=np.float64) for n, a in found.items()}


def _first(call: AttentionCall, ledger: Ledger, stages: Mapping[str, np.ndarray]) -> Leaving | None:
    try:
        return first_leaving(call, ledger, stages)
    except ValueError as error:
        raise UsageError(f"stages of the subject: {error}") from error
