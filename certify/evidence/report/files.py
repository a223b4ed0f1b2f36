"""The evidence folder: events as they come, everything else when the verdict is in."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

from attnspec.certify.evidence.certificate import Certificate, to_json
from attnspec.certify.evidence.counterexample import CounterExample
from attnspec.certify.evidence.events import CaseChecked, CounterExampleFound, Event, VerdictReached, event_json


class Evidence:
    """Handler of events that writes a folder: events.jsonl, certificate.json, report.html, junit.xml, summary.md."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self._events: TextIO | None = None
        self._examples: dict[str, CounterExample] = {}

    def __call__(self, event: Event) -> None:
        """Write down one event."""
        if self._events is None:
            self.out.mkdir(parents=True, exist_ok=True)
            self._events = (self.out / "events.jsonl").open("w", encoding="utf-8")
        self._events.write(event_json(event) + "\n")
        if not isinstance(event, CaseChecked):
            self._events.flush()
        if isinstance(event, CounterExampleFound):
            self._examples[event.record.id] = event.record
        if isinstance(event, VerdictReached):
            self.close()
            write_reports(event.certificate, self._examples, self.out)

    def close(self) -> None:
        """Close what is open."""
        if self._events is not None:
            self._events.close()
            self._events = None


def write_reports(certificate: Certificate, examples: dict[str, CounterExample], out: Path) -> None:
    """Write every report of a certificate into a folder."""
    from attnspec.certify.evidence.report.html import html
    from attnspec.certify.evidence.report.junit import junit
    from attnspec.certify.evidence.report.markdown import markdown

    out.mkdir(parents=True, exist_ok=True)
    (out / "certificate.json").write_text(to_json(certificate), encoding="utf-8")
    (out / "summary.md").write_text(markdown(certificate, examples), encoding="utf-8")
    (out / "junit.xml").write_text(junit(certificate, examples), encoding="utf-8")
    (out / "report.html").write_text(html(certificate, examples), encoding="utf-8")


class JsonLines:
    """Handler of events that prints each as one line of JSON. Cases are left to events.jsonl."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def __call__(self, event: Event) -> None:
        """Print one event."""
        if not isinstance(event, CaseChecked):
            self.stream.write(event_json(event) + "\n")
            self.stream.flush()
