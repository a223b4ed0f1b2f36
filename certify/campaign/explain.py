"""`certify explain`: where a subject's numbers first leave what the spec and the ledger allow, on one call."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from attnspec.certify.campaign.identify import load
from attnspec.certify.campaign.parts import Parts
from attnspec.certify.errors import UsageError
from attnspec.certify.evidence.counterexample import find_counterexample, read_counterexample
from attnspec.certify.evidence.explanation import Asked, Explanation
from attnspec.certify.subject import Subject
from attnspec.certify.subjects.isolate import CALL_TIMEOUT, IsolatedSubject
from attnspec.certify.trials.engine import run_trial
from attnspec.certify.trials.held import Held
from attnspec.certify.trials.trial import Trial
from attnspec.pyspec import AttentionCall, CallError, Ledger, call_from_json
from attnspec.pyspec.calls.json import FORMAT, OLD_FORMATS
from attnspec.pyspec.oracle.stages import Leaving, first_leaving


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
            return Asked(Trial(call_from_json(raw)), subject, device or "cpu", None, None, path.name)
        except CallError as error:
            raise UsageError(f"{path}: {error}") from error
    record = read_counterexample(path)
    about, trial = f"{record.id} to {record.property}", record.failing_trial()
    if subject is None or subject == record.subject:
        where = device or record.device
        held, limit = record.held_to(), record.call_timeout
        return Asked(trial, record.subject, where, record.isolated, held, about, record.property, limit)
    return Asked(trial, subject, device or record.device, None, None, about, record.property, record.call_timeout)


def explain(one: Asked, parts: Parts) -> Explanation:
    """Run it once and hold every tensor, and every stage the subject shows, to what is allowed there."""
    isolated = parts.foreign(one.subject) if one.isolated is None else one.isolated or parts.foreign(one.subject)
    subject = load(one.subject, one.device, isolated, parts, one.call_timeout or CALL_TIMEOUT)
    call = one.trial.call
    try:
        ledger = one.ledger or subject.ledger(call.dtype)
        prop = None if one.property is None else parts.properties().get(one.property)
        outcome = run_trial(one.trial, Held(subject, lambda _: ledger, one.device), prop).outcome
        # Stages are those of the call as it is: with other arrays in its place they would say nothing.
        plain = outcome.skip is None and not outcome.failures and not one.trial.raw and call.own_dropout is None
        stages = shown_stages(subject, call) if plain else None
        leaving = None if stages is None else _first(call, ledger, stages)
        return Explanation(one, ledger, outcome, shows_stages=stages is not None, leaving=leaving)
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
