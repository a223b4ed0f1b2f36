"""Phase "stored counter-examples": what earlier runs found, run again first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from attnspec.certify.errors import UsageError
from attnspec.certify.evidence.counterexample import CounterExample, read_counterexample
from attnspec.certify.subject import Subject
from attnspec.certify.trials.engine import run_trial
from attnspec.certify.trials.held import Held
from attnspec.certify.trials.outcome import Outcome
from attnspec.certify.trials.property import Property
from attnspec.certify.trials.snippet import snippet
from attnspec.certify.trials.trial import Trial


@dataclass(frozen=True, eq=False)
class Replayed:
    """A stored counter-example after its trial was run again."""

    record: CounterExample
    trial: Trial
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


def replay(record: CounterExample, prop: Property, held: Held) -> Replayed:
    """Run the stored trial again, under the ledger in force."""
    trial = record.failing_trial()
    return Replayed(record, trial, run_trial(trial, held, prop).outcome)


def snippet_of(subject: Subject, trial: Trial, outcome: Outcome) -> str:
    """The failing trial as a program; a comment where the subject cannot say how it is called."""
    try:
        return snippet(trial, outcome, subject.program, getattr(subject, "timeout", None))
    except Exception as error:
        return f"# the subject gave no program: {type(error).__name__}: {error}\n"
