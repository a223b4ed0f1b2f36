"""Refutations: made small, held against the reference, written down; and those of earlier runs, run again first."""

from __future__ import annotations

import time
from pathlib import Path

from attnspec.certify.campaign.budget import reduction_budget
from attnspec.certify.campaign.minimise import REDUCTION_SECONDS, Reduction, minimise, refutes_reference
from attnspec.certify.campaign.run import Run
from attnspec.certify.campaign.search import Case, Tally, case_of
from attnspec.certify.campaign.stored import concerns, replay, snippet_of, stored
from attnspec.certify.errors import CertifyError, OwnFault
from attnspec.certify.evidence.counterexample import Refutation, make_counterexample, write_counterexample
from attnspec.certify.evidence.events import CounterExampleFound, PhaseFinished, Reducing
from attnspec.certify.evidence.proofs import ProofRecord, checked_here
from attnspec.certify.subject import Subject
from attnspec.certify.trials.engine import Checked
from attnspec.certify.trials.held import Held
from attnspec.certify.trials.property import Property


def refute(run: Run, held: Held, reference: Subject | None, proofs: ProofRecord, case: Case, prop: Property) -> None:
    """Make the refuting call small and write it down. An OwnFault where a right kernel is refuted on it as well."""
    assert case.call is not None
    assert case.trial is not None
    if refutes_reference(prop, reference, case.call):
        raise OwnFault(
            f"property {prop.id}, case {case.index}: the reference is refuted as well, so the check is wrong"
        )
    run.tell(Reducing(prop.id, case.call.dtype))
    left = REDUCTION_SECONDS if run.deadline is None else run.deadline - time.monotonic()
    how = Reduction(
        prop,
        held,
        run.parts.reduce,
        reference,
        reduction_budget(len(run.found)),
        min(REDUCTION_SECONDS, left),
        [call for _, call in run.found.values()],
    )
    found = Checked(case.call, case.outcome, case.trial)
    try:
        smallest = minimise(how, found)
    except KeyboardInterrupt:
        _keep(run, held, proofs, _refutation(run, held, prop, found, case.index, False))
        raise
    _keep(run, held, proofs, _refutation(run, held, prop, smallest, case.index, True))


def _refutation(run: Run, held: Held, prop: Property, found: Checked, index: int, reduced: bool) -> Refutation:
    request = run.ready.request
    assert found.trial is not None
    return Refutation(
        prop=prop,
        subject=request.subject,
        device=request.device,
        isolated=run.ready.isolated,
        ledger=held.ledger_for(found.call.dtype),
        base=found.call,
        trial=found.trial,
        outcome=found.outcome,
        seed=request.seed,
        index=index,
        profile=request.profile,
        reduced=reduced,
        call_timeout=request.call_timeout if run.ready.isolated else None,
    )


def _keep(run: Run, held: Held, proofs: ProofRecord, found: Refutation, *, is_stored: bool = False) -> None:
    """Record a refutation, write it, and tell of it."""
    record = make_counterexample(
        found,
        snippet_of(held.subject, found.trial, found.outcome),
        theorem_checked_here=checked_here(proofs, found.prop.theorem),
    )
    run.found[found.prop.id, found.base.dtype] = (record, found.base)
    path = write_counterexample(record, _folder(run.ready.request.out))
    run.tell(CounterExampleFound(record, path, is_stored))


def run_stored(run: Run, held: Held, proofs: ProofRecord) -> dict[tuple[str, str], Tally]:
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
            again = replay(record, prop, held)
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
            found = Checked(record.base_call(), again.outcome, again.trial)
            run.tell(tally.add(case_of(record.index, found)))
            tally.finished = True
            refuted[key] = tally
            kept = _refutation(run, held, prop, found, record.index, record.reduced)
            _keep(run, held, proofs, kept, is_stored=True)
    parts = ((run.still, "still refute"), (run.hold, "hold now"), (run.aside, "are about something else"))
    run.tell(
        PhaseFinished("stored counter-examples", ", ".join(f"{len(n)} {t}" for n, t in parts if n) or "none")
    )  # fmt: skip
    return refuted


def _folder(out: Path) -> Path:
    return out / "counterexamples"
