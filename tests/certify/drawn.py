"""Outcomes of a property on generated calls."""

from __future__ import annotations

from collections.abc import Iterator

from attnspec.certify.campaign.parts import features_of
from attnspec.certify.properties import Bench, Outcome, Property
from attnspec.certify.subject import Subject
from attnspec.strategies import PROFILES, call_at, small


def cases(subject: Subject, prop: Property, dtype: str, count: int, seed: int = 5) -> Iterator[Outcome]:
    """Outcomes of the property on small calls, those it does not speak of left out."""
    bench, sizes = Bench(subject, subject.ledger), small(PROFILES["smoke"])
    for index in range(count):
        call = prop.prepare(call_at(seed, index, sizes, features_of(subject.capabilities, dtype)))
        outcome = None if call is None else prop.check(call, bench)
        if outcome is not None and outcome.skipped is None:
            yield outcome
