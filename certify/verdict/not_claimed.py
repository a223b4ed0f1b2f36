"""What a certificate does not say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attnspec.certify.evidence.certificate import ProofRecord, PropertyRecord, left_out_as_known
from attnspec.certify.subjects.subject import Subject
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
        unclaimed = [text for held, text in _claims(subject) if not held]
        if unclaimed:
            yield f"The subject does not claim, and was not held to: {', '.join(unclaimed)}."
    for reason, count in left_out_as_known(rows).items():
        yield f"Left out of the claim in {count} cases: {reason}."
    for state, text in (("not_run", "No case could be tested of"), ("not_covered", "Outside the subject's claim:")):
        names = sorted({row.id for row in rows if row.state == state})
        if names:
            yield f"{text} {', '.join(names)}."


def _claims(subject: Subject) -> tuple[tuple[bool, str], ...]:
    c = subject.capabilities
    return (
        (c.gradients, "gradients"),
        (c.bias, "an additive bias"),
        (c.bias_gradient or not c.bias, "the gradient of a bias"),
        (c.value_width_differs, "a value width other than the key width"),
        (c.grouped_heads, "grouped heads"),
        (c.any_head_map, "arbitrary head maps"),
        (c.dropout_multiplier, "dropout"),
        (c.returns_lse, "LSE"),
        (c.empty_rows, "rows that see no key"),
        (c.zero_sizes, "zero lengths"),
        (c.any_scale, "a scale of one's own"),
        (c.deterministic, "the same bits from the same call"),
        (c.refuses_meaningless, "an exception for calls without meaning"),
        (c.softcap, "a softcap"),
        (c.sink, "an attention sink"),
    )
