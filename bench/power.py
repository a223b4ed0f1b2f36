"""What does each way of testing catch? Planted bugs against our suite and against the rules of other projects.

    python bench/power.py [--seeds 3] [--jobs 2] [--dtype D ...] [--mutants GLOB] [--quick] [--state FILE] [--write]

For each bug of tests/mutants and each storage type in which it acts: cases and seconds until our suite first refutes
it (the campaign's own cases at --profile pr), and the first case of each peer rule (bench/peers) that rejects it, on
the peer's own data, shapes and reference. The correct kernel is judged on the same cases in the same run: a case that
rejects it is a false alarm, and rejects no bug. What --state already holds is not run again, unless a source that it
came from has changed. --write makes docs/POWER.md and docs/power.svg from the same rows.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # the zoo and the peers are not installed

DTYPES = ("float32", "bfloat16", "float16")
QUICK = 60
CORRECT = ""
PEERS = "peers"
ZOO_SOURCES = ("tests/mutants/kernel", "tests/mutants/catalogue*.py", "tests/mutants/calls.py")
OUR_SOURCES = ("tests/mutants/subject.py", "tests/mutants/native.py", "tests/mutants/hunt.py", "strategies",
               "pyspec", "certify/trials", "certify/properties", "certify/conventions",
               "certify/campaign/budget.py")  # fmt: skip
MEASURED = ("tests/mutants", "strategies", "pyspec", "certify/trials", "certify/properties", "bench/peers")

Row = dict[str, Any]


@cache
def sources(part: str) -> str:
    """Digest of the files that a row of this part came from."""
    digest = hashlib.sha256()
    for pattern in (*ZOO_SOURCES, *(("bench/peers",) if part == PEERS else OUR_SOURCES)):
        for place in sorted(ROOT.glob(pattern)):
            for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
                digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def judge_ours(name: str, dtype: str, seed: int, most: int | None) -> Row:
    """The first refutation of a bug; for the correct kernel, all refutations."""
    from attnspec.certify.trials import Held
    from tests.mutants.hunt import check, deck, hunt
    from tests.mutants.subject import ZooSubject

    subject, cards = ZooSubject(frozenset({name} - {CORRECT})), deck(dtype, seed)
    if name == CORRECT:
        held = Held(subject, subject.ledger)
        alarms = [[c.prop.id, c.index] for c in cards if check(c, held).status == "refuted"]
        return {"case": None, "seconds": None, "why": None, "tried": len(cards), "alarms": alarms}
    cards = cards[:most]
    hit = hunt(subject, cards, time.process_time)
    if hit is None:
        return {"case": None, "seconds": None, "why": None, "tried": len(cards)}
    return {"case": hit.cases, "seconds": round(hit.seconds, 4), "why": hit.property}


def judge_peers(name: str, dtype: str, alarmed: dict[str, frozenset[int]]) -> Row:
    """By rule, the first case that rejects a bug; for the correct kernel, all of them. Alarmed cases do not count."""
    from bench.peers import RULES
    from bench.peers.model import beyond
    from tests.mutants.catalogue import BY_NAME

    bug, seen = BY_NAME.get(name), {}
    for rule in RULES:
        reason = beyond(rule, bug, dtype) if bug else (None if dtype in rule.dtypes else f"not run in {dtype}")
        seen[rule.id] = (
            {"na": reason} if reason else judge_peer(rule.id, name, dtype, alarmed.get(rule.id, frozenset()))
        )
    return seen


@cache
def peer_cases(rule_id: str, dtype: str) -> tuple[Any, ...]:
    """A peer's cases of two seeds."""
    from bench.peers import RULES

    rule = next(r for r in RULES if r.id == rule_id)
    return rule.cases(dtype, 0) + rule.cases(dtype, 1)


def judge_peer(rule_id: str, name: str, dtype: str, alarmed: frozenset[int]) -> Row:
    """One rule of `judge_peers`."""
    from bench.peers.model import Kernel, verdict

    cases, kernel = peer_cases(rule_id, dtype), Kernel(frozenset({name} - {CORRECT}))
    alarms, start = [], time.process_time()
    for number, case in enumerate(cases):
        if number in alarmed:
            continue
        found = verdict((case,), kernel)
        if found is not None and name != CORRECT:
            return {"case": number + 1, "why": found[1], "seconds": round(time.process_time() - start, 4)}
        if found is not None:
            alarms.append([number, found[1]])
    return {"case": None, "seconds": None, "why": None, "tried": len(cases), "alarms": alarms}


def run_shard(
    dtype: str, part: str, names: list[str], most: int | None, state: str | None, known: list[Row]
) -> list[Row]:
    """The rows of one storage type and part, the correct kernel first; each is written to the state file when done."""
    import torch

    from bench.checkout import commit

    torch.set_num_threads(1)
    rows = [r for r in known if (r["dtype"], r["part"]) == (dtype, part)]
    done = {r["mutant"] for r in rows}
    for name in (CORRECT, *names):
        if name in done:
            continue
        row: Row = {
            "mutant": name,
            "dtype": dtype,
            "part": part,
            "most": most,
            "sources": sources(part),
            "commit": commit(*MEASURED),
        }
        if part == PEERS:
            row["seen"] = judge_peers(name, dtype, alarmed_cases(rows))
        else:
            row["seen"] = judge_ours(name, dtype, int(part.removeprefix("seed ")), most)
        rows.append(row)
        if state is not None:
            with open(state, "a") as file:
                file.write(json.dumps(row) + "\n")
    return rows


def alarmed_cases(rows: list[Row]) -> dict[str, frozenset[int]]:
    """By peer, the cases that reject the correct kernel."""
    correct = next((r["seen"] for r in rows if r["mutant"] == CORRECT), {})
    return {rule: frozenset(n for n, _ in seen.get("alarms", ())) for rule, seen in correct.items()}


def known_rows(state: Path | None, most: int | None, as_is: bool) -> list[Row]:
    """Rows of an earlier run from the same sources (or any, as is); a line cut short by an interrupt is dropped."""
    rows: dict[tuple[str, str, str], Row] = {}
    for line in state.read_text().splitlines() if state is not None and state.exists() else ():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        if as_is or (within(row, most) and row["sources"] == sources(row["part"])):
            rows[row["mutant"], row["dtype"], row["part"]] = row
    return list(rows.values())


def within(row: Row, most: int | None) -> bool:
    """Would a run with this limit give the row? A kill, under any limit it keeps to; a survivor, under its own."""
    if row["part"] == PEERS or not row["mutant"]:
        return True
    case = row["seen"]["case"]
    return row.get("most") == most if case is None else most is None or case <= most


@dataclass(frozen=True)
class Options:
    """What the command line asks for."""

    seeds: int
    jobs: int
    dtypes: tuple[str, ...]
    pattern: str
    most: int | None
    quick: bool
    state: Path | None
    who: str
    as_is: bool
    write: bool

    @property
    def limit(self) -> int | None:
        """Cases of ours for each bug; None: the whole profile."""
        return QUICK if self.quick else self.most

    def parts(self) -> list[str]:
        """Whose rows are run: the peers' and those of our suite by seed."""
        parts = [PEERS, *(f"seed {n}" for n in range(1 if self.quick else self.seeds))]
        return [p for p in parts if self.who == "all" or (p == PEERS) == (self.who == "peers")]


@click.command(help=__doc__)
@click.option("--seeds", default=3, show_default=True, help="Seeds of our suite.")
@click.option("--jobs", default=2, show_default=True)
@click.option("--dtype", "dtypes", multiple=True, default=DTYPES)
@click.option("--mutants", "pattern", default="*", metavar="GLOB")
@click.option("--most", type=click.IntRange(min=1), help="Cases of ours for each bug, in place of the whole profile.")
@click.option("--quick", is_flag=True, help=f"One seed, and --most {QUICK}.")
@click.option("--state", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--who", type=click.Choice(["all", "ours", "peers"]), default="all", help="Whose rows to run.")
@click.option("--as-is", is_flag=True, help="Run nothing: report what --state holds, whatever has changed since.")
@click.option("--write", is_flag=True, help="Write docs/POWER.md and docs/power.svg.")
def main(**given: Any) -> None:
    from bench.power_report import write_docs
    from bench.power_score import show
    from tests.mutants.catalogue import live

    asked = Options(**given)
    known, start, parts = known_rows(asked.state, asked.limit, asked.as_is), time.perf_counter(), asked.parts()
    rows = [r for r in known if r["dtype"] in asked.dtypes and r["part"] in parts] if asked.as_is else []
    with ProcessPoolExecutor(asked.jobs, max_tasks_per_child=1) as pool:
        shards = [
            pool.submit(
                run_shard, dtype, part,
                [b.name for b in live() if dtype in b.dtypes and fnmatch.fnmatch(b.name, asked.pattern)],
                asked.limit, str(asked.state) if asked.state else None, known,
            )
            for part in ([] if asked.as_is else parts)
            for dtype in asked.dtypes
        ]  # fmt: skip
        for shard in as_completed(shards):
            rows += shard.result()
    rows = [r for r in rows if not r["mutant"] or fnmatch.fnmatch(r["mutant"], asked.pattern)]
    alarms = show(rows)
    if asked.write:
        write_docs(rows, ROOT / "docs", time.perf_counter() - start, sys.argv[1:])
    sys.exit(1 if alarms else 0)


if __name__ == "__main__":
    main()
