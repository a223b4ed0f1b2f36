"""What does each way of testing catch? Planted bugs against our suite and against the rules of other projects.

    python bench/power.py [--seeds 3] [--jobs 2] [--dtype D ...] [--mutants GLOB] [--quick] [--state FILE] [--write]

For each bug of tests/mutants and each storage type in which it acts: cases and seconds until our suite first refutes
it (the campaign's own cases at --profile pr), and the first case of each peer rule (bench/peers) that rejects it, on
the peer's own data, shapes and reference. The correct kernel is judged on the same cases in the same run: a case that
rejects it is a false alarm, and rejects no bug. What --state already holds is not run again. --write makes
docs/POWER.md and docs/power.svg from the same rows.
"""

from __future__ import annotations

import fnmatch
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # the zoo and the peers are not installed

OURS = "attnspec"
DTYPES = ("float32", "bfloat16", "float16")
QUICK = 60
CORRECT = ""
# What the record of a call cannot say: it has no soft cap, and a call that breaks its contract is not a call.
OUR_GAPS = frozenset({"softcap", "refusals"})

Row = dict[str, Any]


@cache
def peer_cases(rule_id: str, dtype: str) -> tuple[Any, ...]:
    """A peer's cases of two seeds."""
    from bench.peers import RULES

    rule = next(r for r in RULES if r.id == rule_id)
    return rule.cases(dtype, 0) + rule.cases(dtype, 1)


def our_deck(dtype: str, seed: int, quick: bool) -> tuple[Any, ...]:
    """The campaign's cases in dealing order."""
    from tests.mutants.hunt import deck

    return deck(dtype, seed)[: QUICK if quick else None]


def judge_ours(name: str, dtype: str, seeds: int, quick: bool) -> Row:
    """The first refutation of each seed; for the correct kernel, all refutations."""
    from tests.mutants.hunt import Bench, check, hunt
    from tests.mutants.subject import ZooSubject

    subject = ZooSubject(frozenset({name} - {CORRECT}))
    found: Row = {"cases": [], "seconds": [], "by": [], "tried": 0, "alarms": []}
    for seed in range(seeds):
        cards = our_deck(dtype, seed, quick)
        found["tried"] += len(cards)
        if name == CORRECT:
            bench = Bench(subject, subject.ledger)
            for card in cards:
                if check(card, bench).status == "refuted":
                    found["alarms"].append([seed, card.prop.id, card.index])
            continue
        hit = hunt(subject, cards, time.process_time)
        found["cases"].append(None if hit is None else hit.cases)
        found["seconds"].append(None if hit is None else round(hit.seconds, 4))
        found["by"].append(None if hit is None else hit.property)
    return found


def judge_peer(rule_id: str, name: str, dtype: str, alarmed: frozenset[int]) -> Row:
    """The first case that rejects; for the correct kernel, all of them. Cases in `alarmed` do not count."""
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
    return {"case": None, "seconds": None, "tried": len(cases), "alarms": alarms}


def judge_all(name: str, dtype: str, seeds: int, quick: bool, alarmed: dict[str, frozenset[int]]) -> Row:
    """One row: a bug, or the correct kernel, in one storage type against everybody."""
    from bench.peers import RULES
    from bench.peers.model import beyond
    from tests.mutants.catalogue import BY_NAME

    bug = BY_NAME.get(name)
    row: Row = {"mutant": name, "dtype": dtype, "seeds": seeds, "quick": quick, "rules": {}}
    gaps = sorted(bug.needs & OUR_GAPS) if bug else []
    row["rules"][OURS] = {"na": f"no {', '.join(gaps)}"} if gaps else judge_ours(name, dtype, seeds, quick)
    for rule in RULES:
        reason = beyond(rule, bug, dtype) if bug else (None if dtype in rule.dtypes else f"not run in {dtype}")
        seen = {"na": reason} if reason else judge_peer(rule.id, name, dtype, alarmed.get(rule.id, frozenset()))
        row["rules"][rule.id] = seen
    return row


def run_shard(dtype: str, names: list[str], seeds: int, quick: bool, state: str | None, known: list[Row]) -> list[Row]:
    """The rows of one storage type, the correct kernel first; each is appended to the state file when done."""
    import torch

    torch.set_num_threads(1)
    rows = [r for r in known if r["dtype"] == dtype]
    done = {r["mutant"] for r in rows}
    for name in (CORRECT, *names):
        if name not in done:
            alarmed = alarmed_cases(rows)
            rows.append(judge_all(name, dtype, seeds, quick, alarmed))
            if state is not None:
                with open(state, "a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
    return rows


def alarmed_cases(rows: list[Row]) -> dict[str, frozenset[int]]:
    """By peer, the cases that reject the correct kernel."""
    correct = next((r for r in rows if r["mutant"] == CORRECT), None)
    if correct is None:
        return {}
    return {
        rule: frozenset(n for n, _ in seen.get("alarms", ())) for rule, seen in correct["rules"].items() if rule != OURS
    }


def known_rows(state: Path | None, seeds: int, quick: bool) -> list[Row]:
    """Rows of an earlier run with the same options; a line cut short by an interrupt is dropped."""
    rows = []
    for line in state.read_text().splitlines() if state is not None and state.exists() else ():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        if (row["seeds"], row["quick"]) == (seeds, quick):
            rows.append(row)
    return rows


@click.command(help=__doc__)
@click.option("--seeds", default=3, show_default=True, help="Seeds of our suite.")
@click.option("--jobs", default=2, show_default=True)
@click.option("--dtype", "dtypes", multiple=True, default=DTYPES)
@click.option("--mutants", "pattern", default="*", metavar="GLOB")
@click.option("--quick", is_flag=True, help=f"One seed and at most {QUICK} cases of ours for each bug.")
@click.option("--state", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--write", is_flag=True, help="Write docs/POWER.md and docs/power.svg.")
def main(
    seeds: int, jobs: int, dtypes: tuple[str, ...], pattern: str, quick: bool, state: Path | None, write: bool
) -> None:
    from bench.power_report import show, write_docs
    from tests.mutants.catalogue import live

    seeds = 1 if quick else seeds
    known, start = known_rows(state, seeds, quick), time.perf_counter()
    rows: list[Row] = []
    with ProcessPoolExecutor(jobs) as pool:
        shards = [
            pool.submit(
                run_shard, dtype,
                [b.name for b in live() if dtype in b.dtypes and fnmatch.fnmatch(b.name, pattern)],
                seeds, quick, str(state) if state else None, known,
            )
            for dtype in dtypes
        ]  # fmt: skip
        for shard in as_completed(shards):
            rows += shard.result()
    rows = [r for r in rows if not r["mutant"] or fnmatch.fnmatch(r["mutant"], pattern)]
    alarms = show(rows)
    if write:
        write_docs(rows, ROOT / "docs", time.perf_counter() - start, jobs)
    sys.exit(1 if alarms else 0)


if __name__ == "__main__":
    main()
