"""The end of a campaign: waivers, verdict, certificate."""

from __future__ import annotations

import time

import msgspec

from attnspec.certify.campaign.run import Run
from attnspec.certify.campaign.search import together
from attnspec.certify.evidence import environment as surroundings
from attnspec.certify.evidence.certificate import (
    FORMAT,
    Certificate,
    ProofRecord,
    RequestRecord,
    SelfCheckRecord,
    StoredRecord,
    SubjectRecord,
    TimesRecord,
    WaiverRecord,
)
from attnspec.certify.evidence.events import PhaseStarted, VerdictReached
from attnspec.certify.evidence.ledgers import ledger_as_data
from attnspec.certify.verdict.decide import decide
from attnspec.certify.verdict.not_claimed import not_claimed
from attnspec.certify.verdict.waivers import find_waiver, stale


def conclude(run: Run, proofs: ProofRecord, checked: SelfCheckRecord | None, interrupted: bool) -> Certificate:
    """Waivers, verdict and certificate."""
    ready, request = run.ready, run.ready.request
    run.tell(PhaseStarted(request.subject, "verdict"))
    waivers = _waive(run)
    failed = why_failed(checked) if checked is not None and not checked.passed else None
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


def _waive(run: Run) -> list[WaiverRecord]:
    """Turn refuted rows that a live divergence lists into waived ones; warn of stale entries."""
    entries, subject = run.ready.divergences, run.ready.request.subject
    refuted = [(row.id, row.dtype) for row in run.rows if row.state == "refuted"]
    waivers = []
    for i, row in enumerate(run.rows):
        entry = find_waiver(entries, row.id, subject, row.dtype, run.today) if row.state == "refuted" else None
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
    for line in stale(entries, subject, refuted, run.today, ran):
        run.warn(line)
    return waivers


def why_failed(checked: SelfCheckRecord) -> str:
    """What went wrong in a self-check, on one line."""
    missed = f"planted bugs not caught: {', '.join(checked.missed)}" if checked.missed else ""
    return missed or "; ".join(checked.lines) or "the self-check did not pass"
