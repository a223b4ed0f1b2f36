"""Cases to the first refutation of a planted bug, on the cases that `certify run --profile pr` would draw.

The deck of a storage type holds the campaign's own cases (same seeds, same budget for each property), dealt round
by round: case 0 of every property, then case 1, and so on. A deck is drawn once and shown to every bug.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

from attnspec.certify.campaign.budget import cases_for, seed_for
from attnspec.certify.campaign.parts import default_parts
from attnspec.certify.trials import Held, Outcome, Property, registered
from attnspec.certify.trials import check as check_property
from attnspec.pyspec import AttentionCall

from .subject import ZOO, ZooSubject

PROFILE = "pr"


@dataclass(frozen=True)
class Card:
    """One drawn case of one property; a case that the claim does not speak of is never dealt."""

    prop: Property
    index: int
    call: AttentionCall


@dataclass(frozen=True)
class Refutation:
    """Where a bug was first refuted: checks run until then, processor seconds of checking, and the case."""

    cases: int
    seconds: float
    property: str
    index: int


@cache
def deck(dtype: str, seed: int = 0) -> tuple[Card, ...]:
    """Every case of every property that the zoo's claims allow, in dealing order."""
    call_at = default_parts().call_at
    budget = {p.id: cases_for(p, PROFILE) for p in registered().values() if p.needs(ZOO) is None}
    held = Held(ZooSubject(), ZooSubject().ledger)
    cards = []
    for index in range(max(budget.values())):
        for name, prop in registered().items():
            if index >= budget.get(name, 0):
                continue
            call = prop.prepare(call_at(seed_for(seed, name, dtype), index, PROFILE, ZOO, dtype, prop.small))
            if call is not None and held.uncovered(call) is None:
                cards.append(Card(prop, index, call))
    return tuple(cards)


def check(card: Card, held: Held) -> Outcome:
    """What the card's trials come to, up to the first that refutes."""
    return check_property(card.prop, card.call, held).outcome


def hunt(
    subject: ZooSubject, cards: Iterable[Card], clock: Callable[[], float] = time.process_time
) -> Refutation | None:
    """The first card that refutes the subject and not the unmutated kernel too, or None when none does.

    Seconds are processor seconds: wall time says more about what else the machine does.
    """
    held, start = Held(subject, subject.ledger), clock()
    for count, card in enumerate(cards, 1):
        if check(card, held).status == "refuted":
            seconds = clock() - start
            if not refutes_the_kernel(card):
                return Refutation(count, seconds, card.prop.id, card.index)
    return None


def refutes_the_kernel(card: Card) -> bool:
    """Does this case refute the unmutated kernel? Then it is a false alarm, and no bug was caught by it."""
    subject = ZooSubject()
    return check(card, Held(subject, subject.ledger)).status == "refuted"
