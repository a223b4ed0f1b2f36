"""Tables of bench/soundness.py: one summary of its chunks, shown on the terminal and written to docs/."""

from __future__ import annotations

import datetime
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

HEADER = (
    "subject",
    "dtype",
    "calls",
    "checks",
    "alarms",
    "undecided",
    "to balls",
    "vacuous",
    "median",
    "99 %",
    "largest",
)
TITLES = {
    "agreement": "Agreement: every tensor of every call against its exact value",
    "properties": "Properties: the calls shared out over all claims, each prepared and checked as a campaign does",
}


@dataclass(frozen=True)
class Summary:
    """What the chunks of one subject and dtype add up to; `alarms` are (call, complaint)."""

    subject: str
    dtype: str
    calls: int
    undecided: int
    escalated: int
    vacuous: int
    alarms: tuple[tuple[int, str], ...]
    ratios: np.ndarray

    @property
    def cells(self) -> tuple[str, ...]:
        """The row of the table."""
        checks = max(self.ratios.size, 1)
        spread = (np.median(self.ratios), np.quantile(self.ratios, 0.99), self.ratios.max()) if self.ratios.size else ()
        counts = (self.calls, self.ratios.size, len(self.alarms), self.undecided, self.escalated)
        return (
            self.subject, self.dtype, *(f"{n:,}" for n in counts), f"{self.vacuous / checks:.1%}",
            *(f"{x:.3f}" for x in spread),
        )  # fmt: skip


def summaries(chunks: list[dict[str, Any]]) -> list[Summary]:
    """One for each subject and dtype, sorted."""
    pairs: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for chunk in chunks:
        pairs[chunk["subject"], chunk["dtype"]].append(chunk)
    return [
        Summary(
            subject,
            dtype,
            *(sum(c[k] for c in rows) for k in ("calls", "undecided", "escalated", "vacuous")),
            alarms=tuple((index, said) for c in rows for index, said in c["alarms"]),
            ratios=np.array([r for c in rows for _, r in c["ratios"]]),
        )
        for (subject, dtype), rows in sorted(pairs.items())
    ]


def total(found: list[Summary]) -> str:
    """All of them in one sentence."""
    calls, checks = sum(s.calls for s in found), sum(s.ratios.size for s in found)
    alarms = sum(len(s.alarms) for s in found)
    largest = max((float(s.ratios.max()) for s in found if s.ratios.size), default=0.0)
    return f"{calls:,} calls, {checks:,} tensor checks, {alarms} false alarms, largest error ÷ bound {largest:.4f}"


def show(chunks: list[dict[str, Any]]) -> int:
    """Print the tables; return the number of false alarms."""
    from rich.console import Console
    from rich.table import Table

    alarms = 0
    for what in TITLES:
        found = summaries([c for c in chunks if c["what"] == what])
        if not found:
            continue
        table = Table(*HEADER)
        for one in found:
            table.add_row(*one.cells)
            alarms += len(one.alarms)
            for index, said in one.alarms[:5]:
                print(f"ALARM {one.subject} {one.dtype} call {index}: {said}")
        Console(width=150).print(table)
        print(total(found))
    return alarms


def write_page(chunks: list[dict[str, Any]], path: Path) -> None:
    """docs/SOUNDNESS.md."""
    lines = [
        "# Soundness: does the bound ever cry wolf?",
        "",
        "Correct subjects on generated calls. A check is one tensor held to its exact value; an alarm is a check that "
        "refutes, or a complaint without numbers; *undecided*: entries that even balls could not decide; *to balls*: "
        "entries that float64 could not decide; *vacuous*: tensors whose bound says nothing, which count as not tested "
        "in a certificate. The last three columns spread error ÷ bound over checks.",
    ]
    for what, title in TITLES.items():
        found = summaries([c for c in chunks if c["what"] == what])
        if found:
            lines += ["", f"## {title}", "", f"**{total(found)}.**", ""]
            lines += [f"| {' | '.join(HEADER)} |", "|" + "---|" * len(HEADER)]
            lines += [f"| {' | '.join(one.cells)} |" for one in found]
    seeds = sorted({(c["what"], c["seed"], c["profile"]) for c in chunks})
    said = "; ".join(f"{what} with seed {seed} and profile {profile}" for what, seed, profile in seeds)
    commits = ", ".join(sorted({c["commit"] for c in chunks if "commit" in c})) or "an unrecorded commit"
    lines += [
        "",
        f"Made by `python bench/soundness.py --write`, {datetime.date.today().isoformat()}: {said}; at {commits}.",
        "",
    ]
    path.write_text("\n".join(lines), encoding="utf-8")
