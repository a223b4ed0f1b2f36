"""The page docs/POWER.md, from the rows of bench/power.py."""

from __future__ import annotations

import datetime
import os
import platform
from pathlib import Path

import numpy as np

from bench.power_score import (
    OURS,
    PEERS,
    Row,
    applies,
    caught_by_nobody_else,
    dtypes_of,
    mutants_of,
    our_misses,
    pair,
    score,
    seen_by,
    share,
    titles,
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


def write_docs(rows: list[Row], folder: Path, seconds: float, options: list[str]) -> None:
    """docs/POWER.md and docs/power.svg."""
    from bench.power_plot import plot

    folder.mkdir(exist_ok=True)
    (folder / "POWER.md").write_text(page(rows, seconds, options))
    plot(rows, folder / "power.svg")


def page(rows: list[Row], seconds: float, options: list[str]) -> str:
    """The whole page."""
    from bench.peers import RULES
    from tests.mutants.catalogue import BY_NAME, equivalents, live

    seeds = len({r["part"] for r in rows} - {PEERS})
    dtypes, mutants = dtypes_of(rows), mutants_of(rows)
    pairs = sum(len(mutants_of(rows, d)) for d in dtypes)
    tried = sum(s.tried for d in dtypes if (s := score(rows, OURS, d)) is not None)
    alarms = sum(s.alarms for d in dtypes if (s := score(rows, OURS, d)) is not None)
    lines = [
        "# Power: what each way of testing catches",
        "",
        f"{len(mutants)} planted bugs of one correct tiled kernel ([tests/mutants](../tests/mutants)), each in every "
        f"storage type in which it acts: {pairs} pairs. Every rule judges the same "
        "kernel: ours on the cases that `certify run --profile pr` draws, each peer's on its own data, "
        f"shapes, reference and tolerance.{limit(options)} "
        f"The correct kernel is judged on the same cases: **{alarms} false alarms in "
        f"{tried} cases** of ours. A case that rejects the correct kernel counts as a false alarm and rejects no bug.",
        "",
        "![share of planted bugs that each rule rejects](power.svg)",
        "",
        "## Kills and false alarms",
        "",
        "*of all*: of the bugs that act in that storage type. *of applicable*: of those that the project's interface "
        "can express (a kernel without masks has no mask bug). *cases*, *seconds*: until "
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
    lines += ["", "## What took this suite longest", "", *slowest(rows)]
    lines += ["", "## What this suite did not kill", ""]
    missed = our_misses(rows)
    lines += [f"- `{n}` in {d}: {missed_how(rows, n, d)}" for n, d in missed] or ["Nothing."]
    lines += ["", "## The peers' rules", ""]
    for rule in RULES:
        lines += [
            f"**{rule.title}** ({rule.source}). {rule.statement} "
            f"*Here:* {rule.scaled} Storage types: {', '.join(rule.dtypes)}.",
            "",
        ]
    idle = [f"{r.title} ({', '.join(r.dtypes)})" for r in RULES if not set(r.dtypes) & set(dtypes)]
    if idle:
        lines += [f"Stated but not run here, for want of its storage type: {'; '.join(idle)}.", ""]
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
        f"`python bench/power.py {' '.join(shown(options))}`, {datetime.date.today().isoformat()}, on {machine()}. "
        + ("" if "--state" in options else f"It took {seconds:.0f} s. ")
        + f"The machine did other work meanwhile. {provenance(rows)}",
        "",
    ]
    return "\n".join(lines)


def slowest(rows: list[Row]) -> list[str]:
    """How many kills took a second at most, and all others, by storage type."""
    lines = []
    for dtype in dtypes_of(rows):
        kills = [
            (s["seconds"], name, s["case"], s["why"])
            for name in mutants_of(rows, dtype)
            for s in seen_by(rows, OURS, dtype, name)
            if s.get("case") is not None
        ]
        late = sorted((k for k in kills if k[0] > 1.0), reverse=True)
        told = "; ".join(f"`{name}` {s:.1f} s ({case} cases, {why})" for s, name, case, why in late)
        lines.append(
            f"- {dtype}: {len(kills) - len(late)} of {len(kills)} kills within one second. Later: {told or 'none'}."
        )
    return lines


def shown(options: list[str]) -> list[str]:
    """The options that decide the result: not where the state was kept, nor that it was only reported."""
    cut = options.index("--state") if "--state" in options else len(options)
    return [o for o in options[:cut] + options[cut + 2 :] if o != "--as-is"]


def limit(options: list[str]) -> str:
    """What --most says."""
    if "--most" not in options:
        return ""
    return f" Ours looks at {options[options.index('--most') + 1]} cases for each bug at most, not the whole profile."


def provenance(rows: list[Row]) -> str:
    """Commits that the rows were measured at."""
    found = sorted({r["commit"] for r in rows if "commit" in r})
    older = sorted({r["part"] for r in rows if "commit" not in r})
    said = f"Measured at {', '.join(found)}." if found else ""
    return said + (f" Rows of {', '.join(older)}: from an earlier part of the run, on the same zoo." if older else "")


def killers(rows: list[Row], name: str) -> str:
    """The properties that killed a bug first, and the median case over storage types and seeds."""
    seen = [r["seen"] for r in rows if r["mutant"] == name and r["part"] != PEERS]
    by = sorted({s["why"] for s in seen if s.get("case") is not None})
    return f"{', '.join(by)} | {np.median([s['case'] for s in seen if s.get('case') is not None]):.0f}"


def able(rows: list[Row], name: str) -> str:
    """How many peers could have expressed the bug in some storage type."""
    rules = [r for r in titles() if r != OURS and any(applies(seen_by(rows, r, d, name)) for d in dtypes_of(rows))]
    return f"{len(rules)} of {len(titles()) - 1}"


def missed_how(rows: list[Row], name: str, dtype: str) -> str:
    """On how many seeds, in how many cases."""
    seen = seen_by(rows, OURS, dtype, name)
    lost = [s for s in seen if s["case"] is None]
    return f"{len(lost)} of {len(seen)} seeds, {sum(s['tried'] for s in lost)} cases"
