"""The verdict block: what stands at the end of a run, and what `certify show` prints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from attnspec.certify.evidence.certificate import LETTERS, Certificate, PropertyRecord, left_out_as_known
from attnspec.certify.evidence.numbers import ratio_text

STYLES = {
    "held": "green",
    "refuted": "bold red",
    "waived": "yellow",
    "not_covered": "dim",
    "not_run": "yellow",
    "undecided": "yellow",
    "unfinished": "yellow",
    "not_reproducible": "bold yellow",
    "own_fault": "bold magenta",
}
VERDICT_STYLES = {
    "CERTIFIED": "bold green",
    "CERTIFIED WITH WAIVERS": "bold yellow",
    "REFUTED": "bold red",
    "INCOMPLETE": "bold yellow",
}


def last_line(certificate: Certificate) -> str:
    """The fixed last line that scripts may look for."""
    return f"VERDICT {certificate.verdict} {certificate.subject.spec} exit={certificate.exit_code}"


def print_certificate(console: Console, certificate: Certificate, out: Path, *, rows: bool = True) -> None:
    """Properties, tensors, audit, waivers, warnings, and where the files are."""
    if rows and certificate.properties:
        console.print(_properties(certificate))
    for line in facts(certificate):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    heading = Text(certificate.verdict, VERDICT_STYLES[certificate.verdict])
    heading.append(f"  {certificate.subject.spec} on {certificate.subject.device}", "bold")
    console.print(heading, soft_wrap=True)
    for reason in certificate.reasons:
        console.print(f"  {reason}", highlight=False, markup=False, soft_wrap=True)
    console.print(f"certificate: {out / 'certificate.json'}", highlight=False, markup=False, soft_wrap=True)


def facts(certificate: Certificate) -> Iterator[str]:
    """Totals, one line each."""
    for dtype, tensors in certificate.tensors.items():
        ratios = ", ".join(f"{name} {ratio_text(t.worst)}" for name, t in tensors.items() if t.worst is not None)
        if ratios:
            yield f"worst error ÷ bound, {dtype}: {ratios}"
    states = [row.state for row in certificate.properties]
    counts = ", ".join(f"{states.count(state)} {state.replace('_', ' ')}" for state in LETTERS if state in states)
    if counts:
        yield f"{certificate.cases} cases: {counts} (a claim at one dtype counts once)"
    if certificate.audit is not None:
        a = certificate.audit
        yield f"audit: {a.rerun} re-run in a fresh process, {a.values_differ + a.verdicts_differ} differ"
    stored = certificate.stored
    if stored.hold_now:
        yield f"stored counter-examples that hold now: {', '.join(stored.hold_now)}"
    for reason, count in left_out_as_known(certificate.properties).items():
        yield f"left out in {count} cases: {reason}"
    for w in certificate.waivers:
        yield f"waived: {w.property} ({w.dtype}), owner {w.owner}, until {w.expires}: {w.reason}"
    for warning in certificate.warnings:
        yield f"warning: {warning}"


def _properties(certificate: Certificate) -> Table:
    dtypes = certificate.request.dtypes
    table = Table(box=None, pad_edge=False, show_edge=False, header_style="bold")
    table.add_column("claim", no_wrap=True)
    for dtype in dtypes:
        table.add_column(dtype, no_wrap=True)
        table.add_column("cases", justify="right")
        table.add_column("worst", justify="right")
    rows: dict[str, dict[str, PropertyRecord]] = {}
    for row in certificate.properties:
        rows.setdefault(row.id, {})[row.dtype] = row
    for name, by_dtype in rows.items():
        cells: list[Text | str] = [name]
        for dtype in dtypes:
            cells += _cells(by_dtype.get(dtype))
        table.add_row(*cells)
    return table


def _cells(row: PropertyRecord | None) -> list[Text | str]:
    if row is None:
        return ["", "", ""]
    text = Text(f"{LETTERS[row.state]} {row.state.replace('_', ' ')}", STYLES[row.state])
    outside = sum(s.cases for s in row.skips if s.kind != "no_such_call")
    cases = f"{row.cases}" + (f" (−{outside})" if outside else "")
    return [text, cases if row.drawn else "–", ratio_text(row.worst)]
