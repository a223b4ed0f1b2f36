"""What happens during a campaign, as typed events. Terminal, JSON lines and files only listen to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from attnspec.certify.evidence.certificate import Certificate, PropertyRecord
from attnspec.certify.evidence.counterexample import CounterExample
from attnspec.certify.evidence.numbers import ratio_out
from attnspec.certify.trials.outcome import CaseStatus

PHASES = (
    "identify",
    "spec current",
    "self-check",
    "stored counter-examples",
    "search",
    "audit",
    "verdict",
)


@dataclass(frozen=True)
class PhaseStarted:
    """A phase begins; `subject` is the name under which it was asked for."""

    subject: str
    phase: str


@dataclass(frozen=True)
class PhaseFinished:
    """A phase ended well enough to go on; `detail` is one line about what it found."""

    phase: str
    detail: str


@dataclass(frozen=True)
class PairStarted:
    """The search of one property at one dtype begins."""

    property: str
    dtype: str
    cases: int
    number: int
    total: int


@dataclass(frozen=True)
class CaseChecked:
    """One case: its index, what became of it, and the largest error ÷ bound by tensor.

    `labels` say what kind of call it was where it refutes; any other input is drawn again from its index.
    """

    property: str
    dtype: str
    index: int
    status: CaseStatus
    reason: str | None
    ratios: dict[str, float]
    elements: int
    labels: dict[str, str]


@dataclass(frozen=True)
class Reducing:
    """A refuting call is being made smaller."""

    property: str
    dtype: str


@dataclass(frozen=True)
class PairFinished:
    """The search of one property at one dtype ended."""

    record: PropertyRecord
    seconds: float


@dataclass(frozen=True)
class CounterExampleFound:
    """A reduced refutation, and where it was written."""

    record: CounterExample
    path: Path
    stored: bool = False


@dataclass(frozen=True)
class Warned:
    """Something that changes no verdict but should be read."""

    text: str


@dataclass(frozen=True)
class VerdictReached:
    """The end: the certificate, and the folder it was written to."""

    certificate: Certificate
    out: Path


Event = (
    PhaseStarted
    | PhaseFinished
    | PairStarted
    | CaseChecked
    | Reducing
    | PairFinished
    | CounterExampleFound
    | Warned
    | VerdictReached
)
Handler = Callable[[Event], None]


def broadcast(*handlers: Handler) -> Handler:
    """One handler that calls each in turn."""

    def handle(event: Event) -> None:
        for handler in handlers:
            handler(event)

    return handle


def event_json(event: Event) -> str:
    """The event as one line of JSON with its name under "event"."""
    fields: dict[str, Any] = {"event": _kebab(type(event).__name__)}
    for name in event.__dataclass_fields__:
        value = getattr(event, name)
        if name == "ratios":
            value = {tensor: ratio_out(worst) for tensor, worst in value.items()}
        fields[name] = str(value) if isinstance(value, Path) else value
    return msgspec.json.encode(fields).decode()


def _kebab(name: str) -> str:
    return "".join(f"-{c.lower()}" if c.isupper() else c for c in name).lstrip("-")
