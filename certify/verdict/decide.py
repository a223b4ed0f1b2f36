"""From rows to a verdict and an exit code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from attnspec.certify.errors import ExitCode
from attnspec.certify.evidence.certificate import AuditRecord, PropertyRecord, Verdict

# A reason names this many claims; the rows name them all.
NAMED = 8


@dataclass(frozen=True)
class Decision:
    """The verdict, what the shell sees, and why it is not better."""

    verdict: Verdict
    exit_code: ExitCode
    reasons: tuple[str, ...]


def decide(
    rows: Sequence[PropertyRecord],
    audit: AuditRecord | None,
    *,
    missing: str | None = None,
    self_check_failed: str | None = None,
    interrupted: bool = False,
) -> Decision:
    """The verdict over all rows. A refutation outweighs everything but our own failure to check ourselves."""
    if self_check_failed is not None:
        return Decision("INCOMPLETE", ExitCode.OWN_FAULT, (f"self-check failed: {self_check_failed}",))
    if missing is not None:
        return Decision("INCOMPLETE", ExitCode.INCOMPLETE, (missing,))
    reasons = _reasons(rows, audit, interrupted)
    states = {row.state for row in rows}
    if "refuted" in states:
        code = ExitCode.INTERRUPTED if interrupted else ExitCode.REFUTED
        return Decision("REFUTED", code, reasons)
    if interrupted:
        return Decision("INCOMPLETE", ExitCode.INTERRUPTED, reasons)
    if "own_fault" in states:
        return Decision("INCOMPLETE", ExitCode.OWN_FAULT, reasons)
    if states & {"unfinished", "not_reproducible"} or _audit_missing(rows, audit):
        return Decision("INCOMPLETE", ExitCode.INCOMPLETE, reasons)
    if not any(row.cases for row in rows):
        return Decision("INCOMPLETE", ExitCode.NOTHING_SELECTED, ("no case could be tested", *reasons))
    if states & {"not_run", "undecided"}:
        return Decision("INCOMPLETE", ExitCode.INCOMPLETE, reasons)
    verdict: Verdict = "CERTIFIED WITH WAIVERS" if "waived" in states else "CERTIFIED"
    return Decision(verdict, ExitCode.CERTIFIED, reasons)


def _reasons(rows: Sequence[PropertyRecord], audit: AuditRecord | None, interrupted: bool) -> tuple[str, ...]:
    found = ["interrupted"] if interrupted else []
    texts = (
        ("refuted", "refuted"),
        ("own_fault", "this package failed while checking"),
        ("unfinished", "out of time before the last case of"),
        ("not_reproducible", "not reproducible in a fresh process:"),
        ("not_run", "no case could be tested of"),
        ("undecided", "too many cases that no precision decides of"),
    )
    for state, text in texts:
        names = _names([row for row in rows if row.state == state])
        if names:
            found.append(f"{text} {names}")
    if not interrupted and _audit_missing(rows, audit):
        found.append("out of time before the audit" if audit is None else f"audit {'; '.join(audit.lines)}")
    return tuple(found)


def _audit_missing(rows: Sequence[PropertyRecord], audit: AuditRecord | None) -> bool:
    return any(row.cases for row in rows) and (audit is None or audit.rerun == 0)


def _names(rows: Sequence[PropertyRecord]) -> str:
    by_property: dict[str, list[str]] = {}
    for row in rows:
        by_property.setdefault(row.id, []).append(row.dtype)
    texts = [f"{name} ({', '.join(dtypes)})" for name, dtypes in by_property.items()]
    more = len(texts) - NAMED
    return ", ".join(texts[:NAMED]) + (f" and {more} more" if more > 0 else "")
