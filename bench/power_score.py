"""Scores of the rules from the rows of bench/power.py, and the table that the terminal shows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

OURS = "attnspec"
PEERS = "peers"
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


def seen_by(rows: list[Row], rule: str, dtype: str, mutant: str) -> list[Row]:
    """What a rule saw of a bug, one record for each seed of ours; none where nothing was run."""
    parts = [r for r in rows if (r["dtype"], r["mutant"]) == (dtype, mutant)]
    if rule == OURS:
        return [r["seen"] for r in parts if r["part"] != PEERS]
    reason = beyond_of(rule, dtype, mutant) if mutant else None
    return [{"na": reason} if reason else r["seen"][rule] for r in parts if r["part"] == PEERS]


@cache
def beyond_of(rule_id: str, dtype: str, mutant: str) -> str | None:
    """Why a bug is no business of a peer's rule, by what is known of its interface now."""
    from bench.peers import RULES
    from bench.peers.model import beyond
    from tests.mutants.catalogue import BY_NAME

    return beyond(next(r for r in RULES if r.id == rule_id), BY_NAME[mutant], dtype)


def hit(seen: list[Row]) -> bool:
    """Was the bug killed, by us on every seed?"""
    return bool(seen) and all(s.get("case") is not None for s in seen)


def applies(seen: list[Row]) -> bool:
    """Can the interface express the bug?"""
    return bool(seen) and all("na" not in s for s in seen)


def mutants_of(rows: list[Row], dtype: str | None = None) -> list[str]:
    """Bugs judged (in a storage type), by name."""
    return sorted({r["mutant"] for r in rows if r["mutant"] and dtype in (None, r["dtype"])})


def spread(values: list[float]) -> tuple[float, float] | None:
    """Median and 95 % quantile."""
    return (float(np.median(values)), float(np.quantile(values, 0.95))) if values else None


def score(rows: list[Row], rule: str, dtype: str) -> Score | None:
    """The rule's score in a storage type, or None where it is not run there."""
    correct = seen_by(rows, rule, dtype, "")
    if not applies(correct):
        return None
    mutants = [seen_by(rows, rule, dtype, name) for name in mutants_of(rows, dtype)]
    hits = [seen for seen in mutants if hit(seen)]
    return Score(
        kills=len(hits),
        applicable=sum(applies(seen) for seen in mutants),
        live=len(mutants),
        alarms=sum(len(s["alarms"]) for s in correct),
        tried=sum(s["tried"] for s in correct),
        cases=spread([s["case"] for seen in hits for s in seen]),
        seconds=spread([s["seconds"] for seen in hits for s in seen]),
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
    killed: dict[str, set[str]] = {rule: set() for rule in titles()}
    for dtype in dtypes_of(rows):
        for name in mutants_of(rows, dtype):
            for rule, names in killed.items():
                if hit(seen_by(rows, rule, dtype, name)):
                    names.add(name)
    return sorted(killed.pop(OURS) - set().union(*killed.values()))


def our_misses(rows: list[Row]) -> list[tuple[str, str]]:
    """(bug, storage type) that acts, that we can express, and that some seed did not kill."""
    return [
        (name, dtype)
        for dtype in dtypes_of(rows)
        for name in mutants_of(rows, dtype)
        if applies(seen := seen_by(rows, OURS, dtype, name)) and not hit(seen)
    ]
