"""The campaign: seven phases from a request to a verdict, told as events."""

from __future__ import annotations

import datetime
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from certify import environment as surroundings
from certify.audit import Audited, audit
from certify.budget import cases_for, reduction_budget, seed_for
from certify.certificate import (
    FORMAT,
    AuditRecord,
    Certificate,
    ProofRecord,
    PropertyRecord,
    RequestRecord,
    SelfCheckRecord,
    StoredRecord,
    SubjectRecord,
    TimesRecord,
    WaiverRecord,
)
from certify.counterexample import CounterExample, make_counterexample, write_counterexample
from certify.errors import CertifyError, OwnFault
from certify.events import (
    CounterExampleFound,
    Handler,
    PairFinished,
    PairStarted,
    PhaseFinished,
    PhaseStarted,
    Reducing,
    VerdictReached,
    Warned,
)
from certify.identify import Ready
from certify.isolate import IsolatedSubject
from certify.ledgers import ledger_as_data
from certify.minimise import minimise, refutes_reference
from certify.parts import REFERENCE, Parts, SelfCheckReport
from certify.proofs import checked_here
from certify.properties.model import Bench, Outcome, Property
from certify.scope import not_claimed
from certify.search import Case, Draw, Tally, judged, not_covered, search, together
from certify.stored import concerns, replay, snippet_of, stored
from certify.subject import Subject
from certify.verdict import decide
from certify.waivers import find_waiver, stale
from pyspec import AttentionCall


@dataclass
class _Run:
    """What a campaign has gathered so far."""

    ready: Ready
    parts: Parts
    tell: Handler
    deadline: float | None
    started: datetime.datetime
    clock: float
    phases: dict[str, float] = field(default_factory=dict)
    rows: list[PropertyRecord] = field(default_factory=list)
    pairs: list[Audited] = field(default_factory=list)
    found: dict[tuple[str, str], tuple[CounterExample, AttentionCall]] = field(default_factory=dict)
    coverage: dict[str, Counter[str]] = field(default_factory=dict)
    kernels: Counter[str] = field(default_factory=Counter)
    warnings: list[str] = field(default_factory=list)
    still: list[str] = field(default_factory=list)
    hold: list[str] = field(default_factory=list)
    aside: list[str] = field(default_factory=list)
    audit: AuditRecord | None = None

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """A phase's start and time; its end is told by whoever knows what it found."""
        self.tell(PhaseStarted(self.ready.request.subject, name))
        start = time.monotonic()
        try:
            yield
        finally:
            self.phases[name] = round(time.monotonic() - start, 3)

    def warn(self, text: str) -> None:
        """Record and tell a warning."""
        self.warnings.append(text)
        self.tell(Warned(text))


def self_check(parts: Parts, profile: str, seed: int) -> SelfCheckRecord:
    """Run the self-check and record it."""
    report: SelfCheckReport = parts.self_check(profile, seed)
    return SelfCheckRecord(
        passed=report.passed, caught=list(report.caught), missed=list(report.missed), lines=list(report.lines)
    )


def run_campaign(
    ready: Ready,
    tell: Handler,
    parts: Parts,
    *,
    checked: SelfCheckRecord | None = None,
    proofs: ProofRecord | None = None,
    today: datetime.date | None = None,
) -> Certificate:
    """Run every phase and return the certificate; what it says is told as events, and nothing is printed.

    `checked` and `proofs` save repeating those phases for a second subject. Ctrl-C ends the search and leaves what
    was found so far in the certificate. Raises UsageError when phase "spec current" finds a contradiction.
    """
    request = ready.request
    now = time.monotonic()
    deadline = None if request.time_limit is None else now + request.time_limit
    run = _Run(ready, parts, tell, deadline, datetime.datetime.now(datetime.UTC), now)
    interrupted = False
    try:
        with run.phase("identify"):
            tell(PhaseFinished("identify", _identified(ready)))
        with run.phase("spec current"):
            proofs = parts.proofs() if proofs is None else proofs
            tell(PhaseFinished("spec current", f"proofs: {proofs.detail}"))
        if ready.subject is not None:
            with run.phase("self-check"):
                checked = self_check(parts, request.profile, request.seed) if checked is None else checked
                tell(PhaseFinished("self-check", _checked_line(checked)))
            if checked.passed:
                _examine(run, ready.subject, proofs)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        if isinstance(ready.subject, IsolatedSubject):
            ready.subject.close()
    return _conclude(run, proofs or parts.proofs(), checked, interrupted, today or run.started.date())


def _examine(run: _Run, subject: Subject, proofs: ProofRecord) -> None:
    ready, request = run.ready, run.ready.request
    assert ready.ledger_for is not None
    bench = Bench(subject, ready.ledger_for, request.device)
    reference = run.parts.reference() if request.subject != REFERENCE else None
    with run.phase("stored counter-examples"):
        tallies = _stored(run, bench, proofs)
    with run.phase("search"):
        pairs = [(p, d) for d in ready.dtypes for p in ready.properties]
        for number, (prop, dtype) in enumerate(pairs, 1):
            _pair(run, bench, reference, proofs, prop, dtype, number, len(pairs), tallies.get((prop.id, dtype)))
        held = sum(row.state == "held" for row in run.rows)
        cases = sum(row.cases for row in run.rows)
        run.tell(PhaseFinished("search", f"{cases} cases, {held} of {len(pairs)} claims held"))
    with run.phase("audit"):
        _audit(run)


def _stored(run: _Run, bench: Bench, proofs: ProofRecord) -> dict[tuple[str, str], Tally]:
    """Run the stored counter-examples; return the tallies of the pairs that they refute."""
    ready, request = run.ready, run.ready.request
    records, bad = stored(_folder(request.out))
    for line in bad:
        run.warn(line)
    properties = {p.id: p for p in ready.properties}
    refuted: dict[tuple[str, str], Tally] = {}
    for record in records:
        if not concerns(record, request.subject, request.device, ready.dtypes, ready.properties):
            run.aside.append(record.id)
            continue
        prop = properties[record.property]
        try:
            again = replay(record, prop, bench)
        except CertifyError as error:
            run.aside.append(record.id)
            run.warn(str(error))
            continue
        if not again.outcome.refuted:
            run.hold.append(record.id)
            continue
        run.still.append(record.id)
        key = (prop.id, record.dtype)
        if key not in refuted:
            tally = Tally(prop, record.dtype, run.parts.traits)
            run.tell(tally.add(judged(record.index, again.call, again.outcome)))
            tally.finished = True
            refuted[key] = tally
            _keep(run, bench, proofs, prop, again.call, again.outcome, record.index, record.reduced, is_stored=True)
    parts = ((run.still, "still refute"), (run.hold, "hold now"), (run.aside, "are about something else"))
    run.tell(
        PhaseFinished("stored counter-examples", ", ".join(f"{len(n)} {t}" for n, t in parts if n) or "none")
    )  # fmt: skip
    return refuted


def _pair(
    run: _Run,
    bench: Bench,
    reference: Subject | None,
    proofs: ProofRecord,
    prop: Property,
    dtype: str,
    number: int,
    total: int,
    known: Tally | None,
) -> None:
    """Search one property at one dtype and add its row."""
    request = run.ready.request
    start = time.monotonic()
    reason = prop.needs(bench.subject.capabilities)
    if reason is not None:
        _row(run, not_covered(prop, dtype, reason), start)
        return
    tally = known or Tally(prop, dtype, run.parts.traits)
    draw = _draw(run, bench.subject, prop, dtype)
    cases = cases_for(prop, request.profile, request.examples)
    run.tell(PairStarted(prop.id, dtype, cases, number, total))
    fault = None
    try:
        if known is None:
            search(tally, bench, draw, cases, run.tell, run.deadline)
        if tally.refuting is not None and known is None:
            _refute(run, bench, reference, proofs, tally.refuting, prop, dtype)
    except OwnFault as error:
        fault = str(error)
    except KeyboardInterrupt:
        _row(run, _with_example(run, tally), start)
        raise
    finally:
        for label, names in tally.coverage.items():
            run.coverage.setdefault(label, Counter()).update(names)
        run.kernels.update(tally.kernels)
    run.pairs.append(Audited(tally, draw))
    row = _with_example(run, tally)
    _row(run, row if fault is None else msgspec.structs.replace(row, state="own_fault", note=fault), start)


def _draw(run: _Run, subject: Subject, prop: Property, dtype: str) -> Draw:
    request, claims = run.ready.request, subject.capabilities
    seed = seed_for(request.seed, prop.id, dtype)
    return lambda index: run.parts.call_at(seed, index, request.profile, claims, dtype, prop.small)


def _row(run: _Run, row: PropertyRecord, start: float) -> None:
    run.rows.append(row)
    run.tell(PairFinished(row, round(time.monotonic() - start, 3)))


def _with_example(run: _Run, tally: Tally) -> PropertyRecord:
    example = run.found.get((tally.prop.id, tally.dtype))
    note = None
    if tally.refuting is not None and tally.refuting.outcome is not None:
        note = tally.refuting.outcome.broken
    return tally.record(counterexample=None if example is None else example[0].id, note=note)


def _refute(
    run: _Run, bench: Bench, reference: Subject | None, proofs: ProofRecord, case: Case, prop: Property, dtype: str
) -> None:
    """Make the refuting call small and write it down. An OwnFault where a right kernel is refuted on it as well."""
    assert case.call is not None
    assert case.outcome is not None
    if refutes_reference(prop, reference, case.call):
        raise OwnFault(
            f"property {prop.id}, case {case.index}: the reference is refuted as well, so the check is wrong"
        )
    tries = reduction_budget(len(run.found))
    # What is known before reduction is kept, so that an interrupt loses nothing.
    _keep(run, bench, proofs, prop, case.call, case.outcome, case.index, False, quiet=True)
    run.tell(Reducing(prop.id, dtype))
    call, outcome = minimise(prop, bench, run.parts.reduce, case.call, case.outcome, reference, tries)
    _keep(run, bench, proofs, prop, call, outcome, case.index, True)


def _keep(
    run: _Run,
    bench: Bench,
    proofs: ProofRecord,
    prop: Property,
    call: AttentionCall,
    outcome: Outcome,
    index: int,
    reduced: bool,
    *,
    is_stored: bool = False,
    quiet: bool = False,
) -> None:
    """Record a refutation, write it, and tell of it. `quiet`: only remember it, a smaller one is on its way."""
    request = run.ready.request
    record = make_counterexample(
        prop=prop,
        subject=request.subject,
        device=request.device,
        isolated=run.ready.isolated,
        ledger=bench.ledger_for(call.dtype),
        call=call,
        outcome=outcome,
        seed=request.seed,
        index=index,
        profile=request.profile,
        reduced=reduced,
        snippet="" if quiet else snippet_of(bench.subject, call),
        theorem_checked_here=checked_here(proofs, prop.theorem),
    )
    run.found[prop.id, call.dtype] = (record, call)
    if not quiet:
        path = write_counterexample(record, _folder(request.out))
        run.tell(CounterExampleFound(record, path, is_stored))


def _audit(run: _Run) -> None:
    ready, request = run.ready, run.ready.request
    assert ready.ledger_for is not None
    fresh: list[Subject] = []

    def bench() -> Bench:
        assert ready.ledger_for is not None
        fresh.append(run.parts.fresh(request.subject, request.device, request.call_timeout))
        return Bench(fresh[0], ready.ledger_for, request.device)

    properties = {p.id: p for p in ready.properties}
    redo = [
        (name, dtype, lambda b, p=properties[name], c=call: p.check(c, b).refuted)
        for (name, dtype), (_, call) in run.found.items()
    ]
    try:
        done = audit(run.pairs, bench, request.seed, run.deadline, redo)
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


def _folder(out: Path) -> Path:
    return out / "counterexamples"


def _identified(ready: Ready) -> str:
    if ready.subject is None:
        return ready.missing or "no subject"
    where = "in a process of its own" if ready.isolated else "in this process"
    return f"{ready.subject.name} on {ready.request.device}, {', '.join(ready.dtypes)}, {where}"


def _checked_line(checked: SelfCheckRecord) -> str:
    total = len(checked.caught) + len(checked.missed)
    line = f"{len(checked.caught)} of {total} planted bugs caught"
    return line if checked.passed else f"FAILED: {_failed(checked)}"


def _failed(checked: SelfCheckRecord) -> str:
    missed = f"planted bugs not caught: {', '.join(checked.missed)}" if checked.missed else ""
    return missed or "; ".join(checked.lines) or "the self-check did not pass"


def _conclude(
    run: _Run, proofs: ProofRecord, checked: SelfCheckRecord | None, interrupted: bool, today: datetime.date
) -> Certificate:
    """Waivers, verdict and certificate."""
    ready, request = run.ready, run.ready.request
    run.tell(PhaseStarted(request.subject, "verdict"))
    waivers = _waive(run, today)
    failed = _failed(checked) if checked is not None and not checked.passed else None
    decision = decide(
        run.rows, run.audit, missing=ready.missing, self_check_failed=failed, interrupted=interrupted
    )  # fmt: skip
    subject = ready.subject
    certificate = Certificate(
        format=FORMAT,
        verdict=decision.verdict,
        exit_code=int(decision.exit_code),
        reasons=list(decision.reasons),
        subject=SubjectRecord(
            spec=request.subject,
            name=request.subject if subject is None else subject.name,
            device=request.device,
            isolated=ready.isolated,
            # Some libraries give versions as subclasses of str, which JSON writers refuse.
            identity={} if subject is None else {str(k): str(v) for k, v in subject.identity().items()},
            capabilities={} if subject is None else msgspec.to_builtins(subject.capabilities),
        ),
        request=RequestRecord(
            profile=request.profile,
            seed=request.seed,
            dtypes=list(ready.dtypes),
            examples=request.examples,
            only=list(request.only),
            time_limit=request.time_limit,
            ledger=request.ledger,
        ),
        environment=surroundings.environment(),
        ledgers={d: ledger_as_data(ready.ledger_for(d)) for d in ready.dtypes} if ready.ledger_for else {},
        proofs=proofs,
        self_check=checked,
        stored=StoredRecord(still_refuted=run.still, hold_now=run.hold, set_aside=run.aside),
        properties=run.rows,
        tensors=together(run.rows),
        cases=sum(row.cases for row in run.rows),
        coverage={label: dict(sorted(names.items())) for label, names in sorted(run.coverage.items())},
        kernels=dict(sorted(run.kernels.items())),
        waivers=waivers,
        warnings=run.warnings,
        audit=run.audit,
        not_claimed=list(not_claimed(subject, ready.dtypes, run.rows, proofs)),
        times=TimesRecord(
            started=run.started.isoformat(timespec="seconds"),
            seconds=round(time.monotonic() - run.clock, 3),
            phases=run.phases,
        ),
    )
    run.tell(VerdictReached(certificate, request.out))
    return certificate


def _waive(run: _Run, today: datetime.date) -> list[WaiverRecord]:
    """Turn refuted rows that a live divergence lists into waived ones; warn of stale entries."""
    entries, subject = run.ready.divergences, run.ready.request.subject
    refuted = [(row.id, row.dtype) for row in run.rows if row.state == "refuted"]
    waivers = []
    for i, row in enumerate(run.rows):
        entry = find_waiver(entries, row.id, subject, row.dtype, today) if row.state == "refuted" else None
        if entry is None:
            continue
        run.rows[i] = msgspec.structs.replace(row, state="waived", note=f"waived by {entry.owner}: {entry.reason}")
        waivers.append(
            WaiverRecord(
                property=row.id,
                dtype=row.dtype,
                counterexample=row.counterexample,
                owner=entry.owner,
                reason=entry.reason,
                expires=entry.expires.isoformat(),
            )
        )
    ran = [(row.id, row.dtype) for row in run.rows if row.cases]
    for line in stale(entries, subject, refuted, today, ran):
        run.warn(line)
    return waivers


__all__ = ["run_campaign", "self_check"]
