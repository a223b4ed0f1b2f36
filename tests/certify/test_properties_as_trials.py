"""Every trial of every property is data: read back it is the same, and comes to the same, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import msgspec
import pytest

from attnspec.certify.campaign.parts import features_of
from attnspec.certify.subject import Subject
from attnspec.certify.subjects import load_subject
from attnspec.certify.trials import Held, Property, registered, run_trial, trial_from_data, trial_to_data
from attnspec.pyspec import AttentionCall
from attnspec.strategies import PROFILES, call_at, small

CALLS, DRAWS = 5, 60
SUBJECTS = ("numpy-reference", "numpy-scores")


def calls(prop: Property, subject: Subject, dtype: str) -> Iterator[AttentionCall]:
    """Calls that the property is asked about."""
    features = features_of(subject.capabilities, dtype)
    drawn = (prop.prepare(call_at(11, index, small(PROFILES["smoke"]), features)) for index in range(DRAWS))
    return (call for call in drawn if call is not None)


def trials_read_back(prop: Property, call: AttentionCall, held: Held) -> int:
    """Runs the property's trials on a call, each of them once more from its document; how many there were."""
    count = 0
    trials = prop.trials(call, held.claims)
    try:
        trial = next(trials)
        while True:
            document = msgspec.json.encode(trial_to_data(trial))
            read = trial_from_data(msgspec.json.decode(document))
            assert msgspec.json.encode(trial_to_data(read)) == document
            seen = run_trial(trial, held, prop)
            # Nothing of the first run is kept.
            again = run_trial(read, Held(held.subject, held.ledger_for), prop)
            assert repr(again.outcome) == repr(seen.outcome)
            assert not seen.outcome.refuted, (prop.id, seen.outcome.text or seen.outcome.worst)
            count += seen.outcome.skip is None
            trial = trials.send(seen)
    except StopIteration:
        return count


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", registered())
def test_trials_read_back_come_to_the_same(name: str, dtype: str) -> None:
    prop, ran = registered()[name], 0
    able = [s for s in map(load_subject, SUBJECTS) if prop.needs(s.capabilities) is None]
    # What the reference refuses is no claim of its own: torch's kernel makes it.
    for subject in able or [load_subject("torch-sdpa:math")]:
        held = Held(subject, subject.ledger)
        counts = (trials_read_back(prop, call, held) for call in calls(prop, subject, dtype))
        ran += sum(islice((count for count in counts if count), CALLS))
    assert ran >= CALLS
