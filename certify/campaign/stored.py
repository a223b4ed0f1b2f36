"""Phase "stored counter-examples": what earlier runs found, run again first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from attnspec.certify.errors import UsageError
from attnspec.certify.evidence.counterexample import CounterExample, read_counterexample
from attnspec.certify.properties.model import Bench, Outcome, Property
from attnspec.certify.subjects.subject import Subject
from attnspec.pyspec import AttentionCall


@dataclass(frozen=True, eq=False)
class Replayed:
    """A stored counter-example after it was run again."""

    record: CounterExample
    call: AttentionCall
    outcome: Outcome


def stored(folder: Path) -> tuple[tuple[CounterExample, ...], tuple[str, ...]]:
    """The counter-examples of a folder, and a line for each file that is none."""
    records, bad = [], []
    for file in sorted(folder.glob("*.json")):
        try:
            records.append(read_counterexample(file))
        except UsageError as error:
            bad.append(str(error))
    return tuple(records), tuple(bad)


def concerns(
    record: CounterExample, subject: str, device: str, dtypes: Sequence[str], properties: Sequence[Property]
) -> bool:
    """Is it about this run's subject, device, dtypes and properties?"""
    return (
        record.subject == subject
        and record.device == device
        and record.dtype in dtypes
        and any(p.id == record.property for p in properties)
    )


def replay(record: CounterExample, prop: Property, bench: Bench) -> Replayed:
    """Check the stored call again, under the bench's ledger."""
    call = record.attention_call()
    return Replayed(record, call, prop.check(call, bench))


def snippet_of(subject: Subject, call: AttentionCall) -> str:
    """The subject's snippet for a call; a comment where it cannot give one."""
    try:
        return subject.snippet(call)
    except Exception as error:
        return f"# the subject gave no snippet: {type(error).__name__}: {error}\n"
