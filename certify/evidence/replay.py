"""`certify replay`: a stored counter-example against the subject as it is now."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from attnspec.certify.campaign.identify import load
from attnspec.certify.campaign.parts import Parts
from attnspec.certify.campaign.stored import replay as check_again
from attnspec.certify.campaign.stored import snippet_of
from attnspec.certify.errors import OwnFault, UsageError, did_you_mean
from attnspec.certify.evidence.counterexample import CounterExample, worst_by_tensor
from attnspec.certify.evidence.proofs import ProofRecord, checked_here
from attnspec.certify.properties.model import Bench
from attnspec.certify.subjects.isolate import IsolatedSubject
from attnspec.pyspec import AttentionCall


@dataclass(frozen=True, eq=False)
class Replay:
    """What came of it: still refuted or not, why nothing was tested, and the record with today's numbers."""

    refuted: bool
    skipped: str | None
    record: CounterExample
    call: AttentionCall


def replay(record: CounterExample, parts: Parts, proofs: ProofRecord) -> Replay:
    """Check the stored call again under the stored ledger. Raises UsageError or MissingDevice as loading does."""
    known = parts.properties()
    if record.property not in known:
        hint = did_you_mean(record.property, known)
        raise UsageError(f"counter-example {record.id} is about property {record.property!r}, unknown here{hint}")
    prop = known[record.property]
    ledger = record.held_to()
    subject = load(record.subject, record.device, record.isolated or parts.foreign(record.subject), parts)
    try:
        try:
            again = check_again(record, prop, Bench(subject, lambda _: ledger, record.device))
        except UsageError:
            raise
        except Exception as error:
            raise OwnFault(f"property {prop.id} failed while checking: {type(error).__name__}: {error}") from error
        seen = msgspec.structs.replace(
            record,
            broken=again.outcome.broken,
            observed=worst_by_tensor(again.outcome),
            theorem_checked_here=checked_here(proofs, prop.theorem),
            snippet=snippet_of(subject, again.call),
        )
        skipped = None if again.outcome.skipped is None else str(again.outcome.skipped)
        return Replay(again.outcome.refuted, skipped, seen, again.call)
    finally:
        if isinstance(subject, IsolatedSubject):
            subject.close()
