"""A campaign under way: its rows, counter-examples and counts, and the events that report them."""

from __future__ import annotations

import datetime
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from attnspec.certify.campaign.audit import Audited
from attnspec.certify.campaign.identify import Ready
from attnspec.certify.campaign.parts import Parts
from attnspec.certify.campaign.search import Tally
from attnspec.certify.evidence.certificate import AuditRecord, PropertyRecord
from attnspec.certify.evidence.counterexample import CounterExample
from attnspec.certify.evidence.events import Handler, PairFinished, PhaseStarted, Warned
from attnspec.pyspec import AttentionCall


@dataclass
class Run:
    """A campaign under way. Every change of it is reported through `tell`."""

    ready: Ready
    parts: Parts
    tell: Handler
    deadline: float | None
    started: datetime.datetime
    clock: float
    today: datetime.date
    phases: dict[str, float] = field(default_factory=dict)
    rows: list[PropertyRecord] = field(default_factory=list)
    pairs: list[Audited] = field(default_factory=list)
    found: dict[tuple[str, str], tuple[CounterExample, AttentionCall]] = field(default_factory=dict)
    coverage: dict[str, Counter[str]] = field(default_factory=dict)
    kernels: Counter[str] = field(default_factory=Counter)
    warnings: list[str] = field(default_factory=list)
    still: list[str] = field(default_factory=list)
    hold: list[str] = field(default_factory=list)
    aside: list[str] = field(default_factory=list)
    audit: AuditRecord | None = None
    settled: bool = False

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Report a phase's start and keep its time; what it found is reported by the phase itself."""
        self.tell(PhaseStarted(self.ready.request.subject, name))
        start = time.monotonic()
        try:
            yield
        finally:
            self.phases[name] = round(time.monotonic() - start, 3)

    def warn(self, text: str) -> None:
        """Record and tell a warning."""
        self.warnings.append(text)
        self.tell(Warned(text))

    def finish(self, row: PropertyRecord, start: float) -> None:
        """Record and tell the row of a pair whose search began at `start` (time.monotonic)."""
        self.rows.append(row)
        self.tell(PairFinished(row, round(time.monotonic() - start, 3)))

    def count(self, tally: Tally) -> None:
        """Add what a pair's cases exercised to the whole."""
        for label, names in tally.coverage.items():
            self.coverage.setdefault(label, Counter()).update(names)
        self.kernels.update(tally.kernels)
