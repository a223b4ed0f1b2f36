"""Tables and plot of bench/power.py: one summary of its rows, shown on the terminal and written to docs/."""

from __future__ import annotations

import datetime
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

OURS = "attnspec"
Row = dict[str, Any]


@dataclass(frozen=True)
class Score:
    """One rule in one storage type.

    kills of `applicable` bugs that its interface can express, out of `live` ones that act there; false alarms among
    the cases tried on the correct kernel; cases and seconds to the first kill, median and 95 %.
    """

    kills: int
    applicable: int
    live: int
    alarms: int
    tried: int
    cases: tuple[float, float] | None
    seconds: tuple[float, float] | None


def hit(seen: Row) -> tuple[list[float], list[float]] | None:
    """Cases and seconds of a kill, one for each seed; None where some seed had none."""
    if "na" in seen:
        return None
    if "cases" in seen:
        return None if None in seen["cases"] or not seen["cases"] else (seen["cases"], seen["seconds"])
    return None if seen["case"] is None else ([seen["case"]], [seen["seconds"]])


def spread(values: list[float]) -> tuple[float, float] | None:
    """Median and 95 % quantile."""
    return (float(np.median(values)), float(np.quantile(values, 0.95))) if values else None


def score(rows: list[Row], rule: str, dtype: str) -> Score | None:
    """The rule's score in a storage type, or None where it is not run there."""
    correct = next((r["rules"][rule] for r in rows if r["dtype"] == dtype and not r["mutant"]), None)
    if correct is None or "na" in correct:
        return None
    mutants = [r["rules"][rule] for r in rows if r["dtype"] == dtype and r["mutant"]]
    hits = [h for seen in mutants if (h := hit(seen)) is not None]
    return Score(
        kills=len(hits),
        applicable=sum("na" not in seen for seen in mutants),
        live=len(mutants),
        alarms=len(correct["alarms"]),
        tried=correct["tried"],
        cases=spread([c for cases, _ in hits for c in cases]),
        seconds=spread([s for _, seconds in hits for s in seconds]),
    )


def titles() -> dict[str, str]:
    """Shown names of all rules, ours first."""
    from bench.peers import RULES

    return {OURS: "attnspec, this suite", **{r.id: r.title for r in RULES}}


def dtypes_of(rows: list[Row]) -> list[str]:
    """The storage types of the rows, in the usual order."""
    order = ("float64", "float32", "bfloat16", "float16")
    return sorted({r["dtype"] for r in rows}, key=order.index)


def show(rows: list[Row]) -> int:
    """Print the table; return our false alarms."""
    from rich.console import Console
    from rich.table import Table

    table = Table("rule", "dtype", "killed", "of applicable", "of all", "false alarms", "cases 50/95 %", "s 50/95 %")
    for dtype in dtypes_of(rows):
        for rule, title in titles().items():
            s = score(rows, rule, dtype)
            if s is not None:
                table.add_row(
                    title, dtype, str(s.kills), share(s.kills, s.applicable), share(s.kills, s.live),
                    f"{s.alarms} of {s.tried}", pair(s.cases, ".0f"), pair(s.seconds, ".2f"),
                )  # fmt: skip
        table.add_section()
    Console(width=150).print(table)
    alone, missed = caught_by_nobody_else(rows), our_misses(rows)
    print(f"{len(alone)} bugs that this suite kills and no peer rejects in any storage type: {', '.join(alone)}")
    print(f"not killed by this suite on every seed: {', '.join(f'{n} ({d})' for n, d in missed) or 'none'}")
    ours = [s.alarms for d in dtypes_of(rows) if (s := score(rows, OURS, d)) is not None]
    return sum(ours)


def share(kills: int, of: int) -> str:
    """kills / of and percent."""
    return f"{kills}/{of} ({kills / of:.0%})" if of else "–"


def pair(values: tuple[float, float] | None, how: str) -> str:
    """median / 95 %."""
    return "–" if values is None else f"{values[0]:{how}} / {values[1]:{how}}"


def caught_by_nobody_else(rows: list[Row]) -> list[str]:
    """Bugs that we kill in some storage type and no peer rejects in any."""
    ours, theirs = set(), set()
    for row in rows:
        for rule, seen in row["rules"].items():
            if row["mutant"] and hit(seen) is not None:
                (ours if rule == OURS else theirs).add(row["mutant"])
    return sorted(ours - theirs)


def our_misses(rows: list[Row]) -> list[tuple[str, str]]:
    """(bug, storage type) that acts, that we can express, and that some seed did not kill."""
    return sorted(
        (r["mutant"], r["dtype"])
        for r in rows
        if r["mutant"] and "na" not in r["rules"][OURS] and hit(r["rules"][OURS]) is None
    )


def machine() -> str:
    """Processor, cores and versions."""
    import torch

    model = next((line.split(":")[1].strip() for line in read("/proc/cpuinfo") if line.startswith("model name")), "")
    versions = f"Python {platform.python_version()}, torch {torch.__version__}, numpy {np.__version__}"
    return f"{model or platform.machine()}, {os.cpu_count()} cores, {versions}"


def read(path: str) -> list[str]:
    """Lines of a file, none where it is not there."""
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def write_docs(rows: list[Row], folder: Path, seconds: float, jobs: int) -> None:
    """docs/POWER.md and docs/power.svg."""
    from bench.power_plot import plot

    folder.mkdir(exist_ok=True)
    (folder / "POWER.md").write_text(page(rows, seconds, jobs))
    plot(rows, folder / "power.svg")


def page(rows: list[Row], seconds: float, jobs: int) -> str:
    """The whole page."""
    from bench.peers import RULES
    from tests.mutants.catalogue import BY_NAME, equivalents, live

    seeds = rows[0]["seeds"]
    dtypes = dtypes_of(rows)
    mutants = {r["mutant"] for r in rows if r["mutant"]}
    tried = sum(s.tried for d in dtypes if (s := score(rows, OURS, d)) is not None)
    alarms = sum(s.alarms for d in dtypes if (s := score(rows, OURS, d)) is not None)
    lines = [
        "# Power: what each way of testing catches",
        "",
        f"{len(mutants)} planted bugs of one correct tiled kernel ([tests/mutants](../tests/mutants)), each in every "
        f"storage type in which it acts: {sum(1 for r in rows if r['mutant'])} pairs. Every rule judges the same "
        "kernel in one run: ours on the cases that `certify run --profile pr` draws, each peer's on its own data, "
        f"shapes, reference and tolerance. The correct kernel is judged on the same cases: **{alarms} false alarms in "
        f"{tried} cases** of ours. A case that rejects the correct kernel counts as a false alarm and rejects no bug.",
        "",
        "![share of planted bugs that each rule rejects](power.svg)",
        "",
        "## Kills and false alarms",
        "",
        "*of all*: of the bugs that act in that storage type. *of applicable*: of those that the project's interface "
        "can express (soft cap is not in our calls; a kernel without masks has no mask bug). *cases*, *seconds*: until "
        "the first rejection, median / 95 %, over bugs killed"
        + (f" and {seeds} seeds" if seeds > 1 else "")
        + "; processor seconds, our exact reference included, the peers' references not.",
        "",
    ]
    for dtype in dtypes:
        lines += [
            f"### {dtype}", "",
            "| rule | of all | of applicable | false alarms | cases | seconds |",
            "|---|---|---|---|---|---|",
        ]  # fmt: skip
        for rule, title in titles().items():
            s = score(rows, rule, dtype)
            if s is not None:
                name = f"**{title}**" if rule == OURS else title
                lines.append(
                    f"| {name} | {share(s.kills, s.live)} | {share(s.kills, s.applicable)} | {s.alarms} of {s.tried} | "
                    f"{pair(s.cases, '.0f')} | {pair(s.seconds, '.2f')} |"
                )
        lines.append("")
    lines += ["## Bugs that no peer rule rejects", ""]
    lines += ["Killed by this suite; no peer rejects them in any storage type.", ""]
    lines += ["| bug | kind | killed by | cases, median | a peer could express it |", "|---|---|---|---|---|"]
    for name in caught_by_nobody_else(rows):
        lines.append(
            f"| `{name}` | {BY_NAME[name].kind.replace('_', ' ')} | {killers(rows, name)} | {able(rows, name)} |"
        )
    lines += ["", "## What this suite did not kill", ""]
    missed = our_misses(rows)
    lines += [f"- `{n}` in {d}: {missed_how(rows, n, d)}" for n, d in missed] or ["Nothing that its calls can express."]
    beyond = sorted({(r["mutant"], r["rules"][OURS]["na"]) for r in rows if "na" in r["rules"][OURS]})
    lines += [
        "",
        "Not expressible in our calls: " + ("; ".join(f"`{n}` ({why})" for n, why in beyond) or "nothing") + ".",
    ]
    lines += ["", "## The peers' rules", ""]
    for rule in RULES:
        lines += [
            f"**{rule.title}** ({rule.source}). {rule.statement} "
            f"*Here:* {rule.scaled} Storage types: {', '.join(rule.dtypes)}.",
            "",
        ]
    lines += [
        "Left out as rules: FlashInfer and flashinfer-bench (their reference is often their own kernel), tritonbench, "
        "BackendBench and the OpInfo samples (constants as above on smaller shapes), Pallas (as splash, looser), "
        "all e4m3 and e5m2 rules (the zoo stores no such type).",
        "",
        f"Left out of the zoo's count: {len(equivalents())} switches that change no bit, "
        f"{len(live()) - len(mutants)} bugs not selected in this run.",
        "",
        "## How this page was made",
        "",
        f"`python bench/power.py --seeds {seeds} --jobs {jobs} --write` on {datetime.date.today().isoformat()}: "
        f"{machine()}. Last run {seconds:.0f} s.",
        "",
    ]
    return "\n".join(lines)


def killers(rows: list[Row], name: str) -> str:
    """The properties that killed a bug first, and the median case over storage types and seeds."""
    ours = [r["rules"][OURS] for r in rows if r["mutant"] == name and "na" not in r["rules"][OURS]]
    by = sorted({p for seen in ours for p in seen["by"] if p})
    counts = [c for seen in ours for c in seen["cases"] if c is not None]
    return f"{', '.join(by)} | {np.median(counts):.0f}"


def able(rows: list[Row], name: str) -> str:
    """How many peers could have expressed the bug in some storage type."""
    rules = {p for r in rows if r["mutant"] == name for p, seen in r["rules"].items() if p != OURS and "na" not in seen}
    return f"{len(rules)} of {len(titles()) - 1}"


def missed_how(rows: list[Row], name: str, dtype: str) -> str:
    """On how many seeds, in how many cases."""
    seen = next(r["rules"][OURS] for r in rows if r["mutant"] == name and r["dtype"] == dtype)
    lost = sum(c is None for c in seen["cases"])
    return f"{lost} of {len(seen['cases'])} seeds, {seen['tried']} cases in all"
