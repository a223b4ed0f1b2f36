"""The campaign: seven phases from a request to a verdict, reported as events."""

from __future__ import annotations

import datetime
import time
import traceback
from dataclasses import dataclass
from functools import partial

import msgspec

from attnspec.certify.campaign.audit import Audited, audit
from attnspec.certify.campaign.budget import SETTLED, cases_for, cases_once_settled, seed_for
from attnspec.certify.campaign.conclude import conclude, why_failed
from attnspec.certify.campaign.identify import Ready
from attnspec.certify.campaign.parts import REFERENCE, Parts
from attnspec.certify.campaign.refute import refute, run_stored
from attnspec.certify.campaign.run import Run
from attnspec.certify.campaign.search import Draw, Tally, not_covered, search
from attnspec.certify.errors import OwnFault
from attnspec.certify.evidence.certificate import Certificate, ProofRecord, PropertyRecord, SelfCheckRecord
from attnspec.certify.evidence.environment import debugging
from attnspec.certify.evidence.events import Handler, PairStarted, PhaseFinished
from attnspec.certify.subject import Subject
from attnspec.certify.subjects.isolate import IsolatedSubject
from attnspec.certify.trials.engine import run_trial
from attnspec.certify.trials.held import Held
from attnspec.certify.trials.property import Property
from attnspec.certify.trials.trial import Trial
from attnspec.certify.verdict.waivers import find_waiver


def run_campaign(
    ready: Ready,
    tell: Handler,
    parts: Parts,
    *,
    checked: SelfCheckRecord | None = None,
    proofs: ProofRecord | None = None,
    today: datetime.date | None = None,
) -> Certificate:
    """Run every phase and return the certificate; its progress is reported as events, and nothing is printed.

    `checked` and `proofs` save repeating those phases for a second subject. Ctrl-C ends the search and leaves what
    was found so far in the certificate. Raises UsageError when phase "spec current" finds a contradiction.
    """
    request = ready.request
    now = time.monotonic()
    deadline = None if request.time_limit is None else now + request.time_limit
    started = datetime.datetime.now(datetime.UTC)
    run = Run(ready, parts, tell, deadline, started, now, today or started.date())
    interrupted = False
    try:
        with run.phase("identify"):
            tell(PhaseFinished("identify", _identified(ready)))
        with run.phase("spec current"):
            proofs = parts.proofs() if proofs is None else proofs
            tell(PhaseFinished("spec current", f"proofs: {proofs.detail}"))
        if ready.subject is not None:
            with run.phase("self-check"):
                checked = parts.self_check(request.profile, request.seed) if checked is None else checked
                tell(PhaseFinished("self-check", _checked_line(checked)))
            if checked.passed:
                _examine(run, ready.subject, proofs)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        if isinstance(ready.subject, IsolatedSubject):
            ready.subject.close()
    return conclude(run, proofs or parts.proofs(), checked, interrupted)


def _examine(run: Run, subject: Subject, proofs: ProofRecord) -> None:
    ready, request = run.ready, run.ready.request
    assert ready.ledger_for is not None
    held = Held(subject, ready.ledger_for, request.device)
    reference = run.parts.reference() if request.subject != REFERENCE else None
    with run.phase("stored counter-examples"):
        tallies = run_stored(run, held, proofs)
    with run.phase("search"):
        pairs = [(p, d) for d in ready.dtypes for p in ready.properties]
        try:
            for number, (prop, dtype) in enumerate(pairs, 1):
                known = tallies.get((prop.id, dtype))
                _pair(run, held, reference, proofs, _Pair(prop, dtype, number, len(pairs), known))
        except KeyboardInterrupt:
            seen = {(row.id, row.dtype) for row in run.rows}
            run.rows += [Tally(p, d).record() for p, d in pairs if (p.id, d) not in seen]
            raise
        for row in run.rows:
            if row.vacuous * 2 > row.drawn:
                run.warn(f"{row.id} ({row.dtype}): the bound says nothing in {row.vacuous} of {row.drawn} cases")
        holding = sum(row.state == "held" for row in run.rows)
        cases = sum(row.cases for row in run.rows)
        run.tell(PhaseFinished("search", f"{cases} cases, {holding} of {len(pairs)} claims held"))
    with run.phase("audit"):
        _audit(run)


@dataclass(frozen=True, eq=False)
class _Pair:
    """One property at one dtype, its place among all of them, and its tally where a stored trial refutes it."""

    prop: Property
    dtype: str
    number: int
    total: int
    known: Tally | None


def _pair(run: Run, held: Held, reference: Subject | None, proofs: ProofRecord, pair: _Pair) -> None:
    """Search one property at one dtype and add its row."""
    request, prop, dtype = run.ready.request, pair.prop, pair.dtype
    start = time.monotonic()
    reason = prop.needs(held.claims)
    if reason is not None:
        run.finish(not_covered(prop, dtype, reason), start)
        return
    tally = pair.known or Tally(prop, dtype, run.parts.traits)
    draw = _draw(run, held.subject, prop, dtype)
    cases = cases_for(prop, request.profile, request.examples)
    if _settled(run):
        cases = cases_once_settled(cases)
    run.tell(PairStarted(prop.id, dtype, cases, pair.number, pair.total))
    fault = None
    try:
        if pair.known is None:
            search(tally, held, draw, cases, run.tell, run.deadline)
        if tally.refuting is not None and pair.known is None:
            refute(run, held, reference, proofs, tally.refuting, prop)
    except OwnFault as error:
        fault = str(error)
        if debugging():
            traceback.print_exc()
    except KeyboardInterrupt:
        run.rows.append(_with_example(run, tally))
        raise
    finally:
        run.count(tally)
    run.pairs.append(Audited(tally, draw))
    row = _with_example(run, tally)
    run.finish(row if fault is None else msgspec.structs.replace(row, state="own_fault", note=fault), start)


def _settled(run: Run) -> bool:
    """Is the verdict REFUTED whatever comes? Refutations that a live divergence waives settle nothing."""
    entries, subject = run.ready.divergences, run.ready.request.subject
    refuted = [row for row in run.rows if row.state == "refuted"]
    telling = [row for row in refuted if find_waiver(entries, row.id, subject, row.dtype, run.today) is None]
    if len(telling) >= SETTLED and not run.settled:
        run.settled = True
        run.warn(f"{SETTLED} claims are refuted: the claims after them get fewer cases")
    return run.settled


def _draw(run: Run, subject: Subject, prop: Property, dtype: str) -> Draw:
    request, claims = run.ready.request, subject.capabilities
    seed = seed_for(request.seed, prop.id, dtype)
    return lambda index: run.parts.call_at(seed, index, request.profile, claims, dtype, prop.small)


def _with_example(run: Run, tally: Tally) -> PropertyRecord:
    example = run.found.get((tally.prop.id, tally.dtype))
    note = None if tally.refuting is None else tally.refuting.outcome.text
    return tally.record(counterexample=None if example is None else example[0].id, note=note)


def _audit(run: Run) -> None:
    ready, request = run.ready, run.ready.request
    assert ready.ledger_for is not None
    fresh: list[Subject] = []

    def held() -> Held:
        assert ready.ledger_for is not None
        fresh.append(run.parts.fresh(request.subject, request.device, request.call_timeout))
        return Held(fresh[0], ready.ledger_for, request.device)

    redo = [
        (name, dtype, partial(_fails_again, record.failing_trial())) for (name, dtype), (record, _) in run.found.items()
    ]
    try:
        done = audit(run.pairs, held, request.seed, run.deadline, redo)
    finally:
        for subject in fresh:
            if isinstance(subject, IsolatedSubject):
                subject.close()
    if done is None:
        run.tell(PhaseFinished("audit", "out of time"))
        return
    run.audit = done.record
    for line in done.record.lines:
        run.warn(line)
    run.rows = [
        msgspec.structs.replace(row, state="not_reproducible")
        if (row.id, row.dtype) in done.differing and row.state == "held"
        else row
        for row in run.rows
    ]
    record = done.record
    run.tell(
        PhaseFinished("audit", f"{record.rerun} re-run, {record.values_differ + record.verdicts_differ} differ")
    )  # fmt: skip


def _fails_again(trial: Trial, held: Held) -> bool:
    return run_trial(trial, held).outcome.refuted


def _identified(ready: Ready) -> str:
    if ready.subject is None:
        return ready.missing or "no subject"
    where = "in a process of its own" if ready.isolated else "in this process"
    return f"{ready.subject.name} on {ready.request.device}, {', '.join(ready.dtypes)}, {where}"


def _checked_line(checked: SelfCheckRecord) -> str:
    total = len(checked.caught) + len(checked.missed)
    line = f"{len(checked.caught)} of {total} planted bugs caught"
    return line if checked.passed else f"FAILED: {why_failed(checked)}"
