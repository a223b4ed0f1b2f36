"""Refutations: made small, held against the reference, written down; and those of earlier runs, run again first."""

from __future__ import annotations

import time
from pathlib import Path

from attnspec.certify.campaign.budget import reduction_budget
from attnspec.certify.campaign.events import CounterExampleFound, PhaseFinished, Reducing
from attnspec.certify.campaign.minimise import REDUCTION_SECONDS, minimise, refutes_reference
from attnspec.certify.campaign.run import Run
from attnspec.certify.campaign.search import Case, Tally, judged
from attnspec.certify.campaign.stored import concerns, replay, snippet_of, stored
from attnspec.certify.errors import CertifyError, OwnFault
from attnspec.certify.evidence.counterexample import make_counterexample, write_counterexample
from attnspec.certify.evidence.proofs import ProofRecord, checked_here
from attnspec.certify.properties.model import Bench, Outcome, Property
from attnspec.certify.subjects.subject import Subject
from attnspec.pyspec import AttentionCall


def refute(
    run: Run, bench: Bench, reference: Subject | None, proofs: ProofRecord, case: Case, prop: Property, dtype: str
) -> None:
    """Make the refuting call small and write it down. An OwnFault where a right kernel is refuted on it as well."""
    assert case.call is not None
    assert case.outcome is not None
    if refutes_reference(prop, reference, case.call):
        raise OwnFault(
            f"property {prop.id}, case {case.index}: the reference is refuted as well, so the check is wrong"
        )
    tries = reduction_budget(len(run.found))
    run.tell(Reducing(prop.id, dtype))
    seconds = REDUCTION_SECONDS if run.deadline is None else run.deadline - time.monotonic()
    try:
        call, outcome = minimise(
            prop,
            bench,
            run.parts.reduce,
            case.call,
            case.outcome,
            reference,
            tries,
            min(REDUCTION_SECONDS, seconds),
            [call for _, call in run.found.values()],
        )
    except KeyboardInterrupt:
        _keep(run, bench, proofs, prop, case.call, case.outcome, case.index, False)
        raise
    _keep(run, bench, proofs, prop, call, outcome, case.index, True)


def _keep(
    run: Run,
    bench: Bench,
    proofs: ProofRecord,
    prop: Property,
    call: AttentionCall,
    outcome: Outcome,
    index: int,
    reduced: bool,
    *,
    is_stored: bool = False,
) -> None:
    """Record a refutation, write it, and tell of it."""
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
        snippet=snippet_of(bench.subject, call),
        theorem_checked_here=checked_here(proofs, prop.theorem),
    )
    run.found[prop.id, call.dtype] = (record, call)
    path = write_counterexample(record, _folder(request.out))
    run.tell(CounterExampleFound(record, path, is_stored))


def run_stored(run: Run, bench: Bench, proofs: ProofRecord) -> dict[tuple[str, str], Tally]:
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


def _folder(out: Path) -> Path:
    return out / "counterexamples"
