"""`certify replay`: a stored counter-example against the subject as it is now."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from attnspec.certify.campaign.identify import load
from attnspec.certify.campaign.parts import Parts
from attnspec.certify.campaign.stored import replay as check_again
from attnspec.certify.campaign.stored import snippet_of
from attnspec.certify.claims import Skip
from attnspec.certify.errors import OwnFault, UsageError
from attnspec.certify.evidence.counterexample import CounterExample, seen_in
from attnspec.certify.evidence.proofs import ProofRecord, checked_here
from attnspec.certify.subjects.isolate import CALL_TIMEOUT, IsolatedSubject
from attnspec.certify.trials.held import Held
from attnspec.pyspec.calls.errors import did_you_mean


@dataclass(frozen=True, eq=False)
class Replay:
    """What came of it: still refuted or not, why nothing was tested, and the record with today's numbers."""

    refuted: bool
    skip: Skip | None
    record: CounterExample


def replay(record: CounterExample, parts: Parts, proofs: ProofRecord) -> Replay:
    """Run the stored trial again under the stored ledger. Raises UsageError or MissingDevice as loading does."""
    known = parts.properties()
    if record.property not in known:
        hint = did_you_mean(record.property, known)
        raise UsageError(f"counter-example {record.id} is about property {record.property!r}, unknown here{hint}")
    prop = known[record.property]
    ledger = record.held_to()
    isolated = record.isolated or parts.foreign(record.subject)
    subject = load(record.subject, record.device, isolated, parts, record.call_timeout or CALL_TIMEOUT)
    try:
        try:
            again = check_again(record, prop, Held(subject, lambda _: ledger, record.device))
        except UsageError:
            raise
        except Exception as error:
            raise OwnFault(f"property {prop.id} failed while checking: {type(error).__name__}: {error}") from error
        seen = msgspec.structs.replace(
            record,
            **seen_in(again.outcome),
            theorem_checked_here=checked_here(proofs, prop.theorem),
            snippet=snippet_of(subject, again.trial, again.outcome),
        )
        return Replay(again.outcome.refuted, again.outcome.skip, seen)
    finally:
        if isinstance(subject, IsolatedSubject):
            subject.close()
