"""Judgements of drawn cases, one line each: write them before a change and after it, and compare bit for bit.

    python bench/judgements.py write before.jsonl
    python bench/judgements.py write after.jsonl
    python bench/judgements.py compare before.jsonl after.jsonl

A line says the subject, format, property and number of a case, what it counts as, and of every tensor that was judged
the largest error ÷ bound as a C99 hex float. Subjects are right kernels and the planted bugs of the self-check.
"""

from __future__ import annotations

import json
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from attnspec.certify.campaign.budget import seed_for
from attnspec.certify.campaign.parts import default_parts
from attnspec.certify.campaign.search import check_case
from attnspec.certify.campaign.selfcheck import PLANTED, Planted
from attnspec.certify.errors import OwnFault
from attnspec.certify.subject import Subject
from attnspec.certify.subjects import load_subject
from attnspec.certify.trials import Held, registered
from attnspec.pyspec.calls.formats import FORMATS

RIGHT = ("numpy-reference", "numpy-scores", "torch-eager", "torch-scores", "torch-sdpa:math", "torch-sdpa:flash")
KEY = ("subject", "dtype", "property", "index")


def judgements(subject: Subject, dtype: str, cases: int) -> Iterator[dict[str, Any]]:
    """The first cases of every property that the subject can be held to."""
    held, call_at = Held(subject, subject.ledger), default_parts().call_at
    for prop in registered().values():
        if prop.needs(held.claims) is not None:
            continue
        seed = seed_for(0, prop.id, dtype)
        for index in range(cases):
            key = dict(zip(KEY, (subject.name, dtype, prop.id, index), strict=True))
            try:
                case = check_case(
                    prop, held, lambda n, s=seed, p=prop: call_at(s, n, "pr", held.claims, dtype, p.small), index
                )
            except OwnFault as fault:
                yield {**key, "status": f"own fault: {fault}", "judged": []}
                continue
            judged = [(j.tensor, j.state, float(j.worst).hex(), j.outside_count) for j in case.outcome.judgements]
            yield {**key, "status": case.status, "judged": judged}


@click.group()
def main() -> None:
    """Write judgements of drawn cases, or compare two files of them."""


@main.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--cases", default=6, show_default=True, help="Cases of each property.")
def write(file: Path, cases: int) -> None:
    """Judge drawn cases of every property with every subject and format, and write them down."""
    subjects: list[tuple[Subject, tuple[str, ...]]] = [(load_subject(name), tuple(FORMATS)) for name in RIGHT]
    subjects += [(Planted(bug), ("float32",)) for bug in PLANTED]
    count = 0
    with file.open("w", encoding="utf-8") as out, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for subject, dtypes in subjects:
            for dtype in dtypes:
                for line in judgements(subject, dtype, cases):
                    out.write(json.dumps(line) + "\n")
                    count += 1
    click.echo(f"{count} judged cases in {file}")


def _read(file: Path) -> dict[tuple[Any, ...], tuple[Any, Any]]:
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return {tuple(row[k] for k in KEY): (row["status"], row["judged"]) for row in rows}


@main.command()
@click.argument("before", type=click.Path(path_type=Path, exists=True))
@click.argument("after", type=click.Path(path_type=Path, exists=True))
def compare(before: Path, after: Path) -> None:
    """List what differs between two files, by property; exit 1 when anything does."""
    old, new = _read(before), _read(after)
    differing: dict[tuple[str, str], list[tuple[Any, ...]]] = defaultdict(list)
    common = [key for key in old if key in new]
    for key in common:
        if old[key] != new[key]:
            (was, _), (now, _) = old[key], new[key]
            differing[key[2], "judgements" if was == now else f"{was} -> {now}"].append(key)
    for (prop, what), keys in sorted(differing.items()):
        click.echo(f"{len(keys):5d}  {prop:32}  {what:24}  {' '.join(map(str, keys[0]))}")
    click.echo(f"{len(common)} cases in both files, {sum(map(len, differing.values()))} differ")
    raise SystemExit(1 if differing else 0)


if __name__ == "__main__":
    main()
