"""Outcomes of a property on generated calls."""

from __future__ import annotations

from collections.abc import Iterator

from attnspec.certify.campaign.parts import features_of
from attnspec.certify.subject import Subject
from attnspec.certify.trials import Held, Outcome, Property, check
from attnspec.strategies import PROFILES, Features, call_at, small


def outcomes(
    subject: Subject, prop: Property, dtype: str, count: int, seed: int = 5, features: Features | None = None
) -> Iterator[Outcome]:
    """Outcomes of the property on the small calls that it is asked about, skipped ones too."""
    held, sizes = Held(subject, subject.ledger), small(PROFILES["smoke"])
    drawn = features_of(subject.capabilities, dtype) if features is None else features
    for index in range(count):
        call = prop.prepare(call_at(seed, index, sizes, drawn))
        if call is not None:
            yield check(prop, call, held).outcome


def cases(subject: Subject, prop: Property, dtype: str, count: int, seed: int = 5) -> Iterator[Outcome]:
    """Those that were tested."""
    return (o for o in outcomes(subject, prop, dtype, count, seed) if o.skip is None)
