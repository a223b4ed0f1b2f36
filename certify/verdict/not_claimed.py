"""What a certificate does not say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attnspec.certify.claims import left_unclaimed
from attnspec.certify.evidence.certificate import ProofRecord, PropertyRecord, left_out_as_known
from attnspec.certify.subject import Subject
from attnspec.pyspec.calls.formats import FORMATS


def not_claimed(
    subject: Subject | None, dtypes: Sequence[str], rows: Sequence[PropertyRecord], proofs: ProofRecord
) -> Iterator[str]:
    """One sentence for each thing that a reader might take for granted and should not."""
    yield "The kernel is tested on the cases counted here; theorems speak of the specification, not of its code."
    if proofs.compiled != "here":
        yield "The theorems were not compiled on this machine."
    yield "Agreement means within the error bound of the ledger recorded here; a wider ledger allows more."
    yield "Nothing is said about speed, memory, or other devices, drivers and library versions."
    left_out = [d for d in FORMATS if d not in dtypes]
    if left_out:
        yield f"Not run in {', '.join(left_out)}."
    if subject is not None:
        lacking = left_unclaimed(subject.capabilities)
        if lacking:
            yield f"The subject does not claim, and was not held to: {', '.join(lacking)}."
    for reason, count in left_out_as_known(rows).items():
        yield f"Left out of the claim in {count} cases: {reason}."
    for state, text in (
        ("not_run", "No case could be tested of"),
        ("undecided", "Not decided by the highest precision:"),
        ("not_covered", "Outside the subject's claim:"),
    ):
        names = sorted({row.id for row in rows if row.state == state})
        if names:
            yield f"{text} {', '.join(names)}."
