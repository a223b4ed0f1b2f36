"""The terminal: live progress where someone watches, one line for each claim where nobody does."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from attnspec.certify.evidence.certificate import LETTERS
from attnspec.certify.evidence.counterexample import CounterExample
from attnspec.certify.evidence.events import (
    CaseChecked,
    CounterExampleFound,
    Event,
    PairFinished,
    PairStarted,
    PhaseFinished,
    PhaseStarted,
    Reducing,
    VerdictReached,
    Warned,
)
from attnspec.certify.evidence.numbers import ratio_text
from attnspec.certify.evidence.report.summary import STYLES, last_line, print_certificate
from attnspec.certify.evidence.report.text import place_of, refutations


class Terminal:
    """Handler of events for a console. `quiet` leaves only refutations and the last line."""

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self.console = console
        self.quiet = quiet
        self.live = console.is_terminal and not quiet
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._found: list[CounterExample] = []

    def __call__(self, event: Event) -> None:
        """Show one event."""
        match event:
            case PhaseStarted(subject=subject, phase=phase):
                self._phase(subject, phase)
            case PhaseFinished(phase=phase, detail=detail):
                if phase in ("search", "audit"):
                    self.stop()
                self._line(f"  {phase:<24} {detail}")
            case PairStarted():
                self._pair(event)
            case CaseChecked():
                if self._progress is not None and self._task is not None:
                    self._progress.advance(self._task)
            case Reducing(property=name, dtype=dtype):
                if self._progress is not None and self._task is not None:
                    self._progress.update(self._task, name=f"{name} ({dtype}) is refuted: looking for a smaller call")
            case PairFinished():
                self._finished(event)
            case CounterExampleFound(record=record, stored=stored):
                self._found.append(record)
                if stored:
                    self._line(f"  stored counter-example {record.id} still refutes {record.property}")
            case Warned(text=text):
                self._line(f"  warning: {text}")
            case VerdictReached():
                self._verdict(event)

    def stop(self) -> None:
        """End the live display, if there is one."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = self._task = None

    def _phase(self, subject: str, phase: str) -> None:
        if phase == "identify" and not self.quiet:
            self.console.print(subject, style="bold", highlight=False, markup=False)
        if phase == "search" and self.live:
            self._progress = Progress(
                TextColumn("  {task.fields[name]}", markup=False),
                BarColumn(bar_width=24),
                TextColumn("{task.completed}/{task.total}  claim {task.fields[number]} of {task.fields[count]}"),
                TimeElapsedColumn(),
                console=self.console,
                transient=True,
                refresh_per_second=8,
            )
            self._progress.start()

    def _pair(self, event: PairStarted) -> None:
        if self._progress is None:
            return
        if self._task is not None:
            self._progress.remove_task(self._task)
        name = f"{event.property} ({event.dtype})"
        self._task = self._progress.add_task("", total=event.cases, name=name, number=event.number, count=event.total)

    def _finished(self, event: PairFinished) -> None:
        row = event.record
        # On a terminal the table at the end says it; only what needs attention is worth a line before.
        if self.live and row.state in ("held", "not_covered"):
            return
        parts = [f"{row.cases} cases"]
        for count, what in (
            (sum(s.cases for s in row.skips if s.kind != "no_such_call"), "not covered"),
            (sum(s.cases for s in row.skips if s.kind == "no_such_call"), "not of this claim"),
            (row.vacuous, "vacuous"),
            (row.undecided, "undecided"),
        ):
            if count:
                parts.append(f"{count} {what}")
        if row.worst is not None:
            parts.append(f"worst {ratio_text(row.worst)}")
        note = f"  {row.note}" if row.note else ""
        text = f"  {LETTERS[row.state]} {row.id} ({row.dtype})  {', '.join(parts)}{note}"
        self._line(text, STYLES[row.state] if row.state != "held" else "")

    def _verdict(self, event: VerdictReached) -> None:
        self.stop()
        certificate = event.certificate
        known = {record.id: record for record in self._found}
        found = [known[row.counterexample] for row in certificate.properties if row.counterexample in known]
        if found:
            text = refutations(found, certificate.proofs, place_of(event.out))
            self.console.print("\n" + text, highlight=False, markup=False, soft_wrap=True)
        if not self.quiet:
            self.console.print()
            # Without a terminal each claim has had its line already.
            print_certificate(self.console, certificate, event.out, rows=self.live)
        self.console.print(last_line(certificate), highlight=False, markup=False, soft_wrap=True)

    def _line(self, text: str, style: str = "") -> None:
        if not self.quiet:
            self.console.print(text, style=style or None, highlight=False, markup=False, soft_wrap=True)
