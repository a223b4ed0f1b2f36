"""In which order should claims be asked? Greedily: next comes the one that refutes most of the bugs still standing.

    python bench/order.py [--seed N ...] [--dtype D ...] [--jobs 2]

Asks every claim once about every planted bug, on the first case that `certify run --profile pr` would draw for it, and
prints the order for `EARLY` in certify/trials/order.py with the share of bugs refuted so far. The seeds are others
than those of bench/power.py, so that the order is not tuned on what is reported.
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the zoo is not installed

SEEDS = (101, 102)
DTYPES = ("float32", "bfloat16")

Refuted = dict[str, set[tuple[str, str, int]]]


def first_cases(dtype: str, seed: int) -> Refuted:
    """By claim, the (bug, dtype, seed) that its first case refutes."""
    import torch

    from attnspec.certify.trials import Held
    from tests.mutants.catalogue import live
    from tests.mutants.hunt import check, deck
    from tests.mutants.subject import ZooSubject

    torch.set_num_threads(1)
    cards = {card.prop.id: card for card in reversed(deck(dtype, seed))}
    found: Refuted = {name: set() for name in cards}
    for bug in live():
        if dtype in bug.dtypes:
            subject = ZooSubject(frozenset({bug.name}))
            held = Held(subject, subject.ledger)
            for name, card in cards.items():
                if check(card, held).status == "refuted":
                    found[name].add((bug.name, dtype, seed))
    return found


def greedy(found: Refuted) -> list[tuple[str, int]]:
    """Claims in order, each with how many more it refutes than those before it."""
    left, standing = dict(found), set().union(*found.values())
    order = []
    while left and standing:
        name = max(left, key=lambda n: len(left[n] & standing))
        order.append((name, len(left[name] & standing)))
        standing -= left.pop(name)
    return order


@click.command(help=__doc__)
@click.option("--seed", "seeds", type=int, multiple=True, default=SEEDS)
@click.option("--dtype", "dtypes", multiple=True, default=DTYPES)
@click.option("--jobs", default=2, show_default=True)
def main(seeds: tuple[int, ...], dtypes: tuple[str, ...], jobs: int) -> None:
    from tests.mutants.catalogue import live

    everything: Refuted = {}
    with ProcessPoolExecutor(jobs) as pool:
        for found in pool.map(first_cases, *zip(*((d, s) for d in dtypes for s in seeds), strict=True)):
            for name, bugs in found.items():
                everything.setdefault(name, set()).update(bugs)
    total, sofar = len(seeds) * sum(dtype in bug.dtypes for bug in live() for dtype in dtypes), 0
    for name, more in greedy(everything):
        sofar += more
        print(f"{name:32} {more:5} more, {sofar / total:.1%} of {total}")


if __name__ == "__main__":
    main()
