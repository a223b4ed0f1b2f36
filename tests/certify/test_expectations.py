"""Each expectation is met by a right kernel, finds what a wrong one does, and says the same once written down."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from attnspec.certify.observation import Observation
from attnspec.certify.properties.dropout_masks import OwnMasks
from attnspec.certify.properties.exact import WithoutRounding
from attnspec.certify.subject import Subject
from attnspec.certify.subjects.families import NumpyScores
from attnspec.certify.trials import Held, Outcome, Trial, registered, run_trial, trial_from_data, trial_to_data
from attnspec.certify.trials.contracts import InputsUnchanged, NotANumber, Refused, ReturnedAs, SameBits
from attnspec.certify.trials.expectations import Between, Moved, Total, Values, zeros
from attnspec.certify.trials.trial import EXPECTATIONS, Expectation
from attnspec.pyspec import AttentionCall, make_call
from tests.certify import fakes
from tests.certify.fakes import Change, Fake

HERE = np.ones((1, 1, 1, 1), dtype=bool)
ZERO, HALF = np.zeros((1, 1, 1, 1)), np.full((1, 1, 1, 1), 0.5)


def two_keys(*values: float, dtype: str = "float32") -> AttentionCall:
    """Equal keys, so that the output is the mean of the values."""
    value = np.array(values).reshape(1, 1, 2, 1)
    one = np.ones((1, 1, 1, 1))
    return make_call(one, np.ones((1, 1, 2, 1)), value, dtype=dtype, grad_output=one)


def changed(**tensors: object) -> Change:
    """Tensors replaced: by a number added to all entries, or by what a function makes of them."""

    def change(call: AttentionCall, seen: Observation) -> Observation:
        new = {n: c(seen.tensors[n]) if callable(c) else seen.tensors[n] + c for n, c in tensors.items()}
        return replace(seen, tensors={**seen.tensors, **new})

    return change


class EveryOther(Fake):
    """Wrong on every second run."""

    def run(self, call: AttentionCall, raw: object = None) -> Observation:
        seen = super().run(call)
        return self.change(call, seen) if self.calls % 2 == 0 else seen


def told(**fields: object) -> Change:
    return lambda call, seen: replace(seen, **fields)


CALL = two_keys(0.0, 1.0)


def alone(expectation: Expectation, call: AttentionCall = CALL, **more: object) -> Trial:
    """A trial of nothing else."""
    return Trial(call, tensors=(), expect=(expectation,), **more)  # type: ignore[arg-type]


SUM = Total("sum", (("grad_value", None),), 2, np.ones((1, 1, 1)), np.zeros((1, 1, 1)), 2)
WEIGHED = Total("sum", (("output", 2.0 * HALF), ("output", -HALF)), None, np.array(0.25), np.zeros(()), 2)
OFF, LAST_BIT = changed(output=0.1), changed(output=lambda t: np.nextafter(t, 9.0))
MOVED = alone(Moved("output", -HALF, ZERO), other=two_keys(1.0, 1.0))
AGAIN = alone(Moved("output", ZERO, ZERO, again=True), other=CALL)
OUT = ("outside", "output")
CASES = {
    "values": (alone(Values("output", HALF, HERE)), OFF, OUT),
    "values exactly": (alone(Values("output", HALF, HERE, "nothing")), changed(output=1e-16), OUT),
    "zeros": (alone(zeros("grad_key", HERE), two_keys(0.0, 0.0)), changed(grad_key=5e-324), ("outside", "grad_key")),
    "between": (alone(Between("output", ZERO, HALF)), OFF, OUT),
    "between, not a number": (alone(Between("output", ZERO, HALF)), fakes.not_a_number, OUT),
    "total along an axis": (alone(SUM), changed(grad_value=0.1), ("outside", "sum")),
    "total with weights": (alone(WEIGHED), OFF, ("outside", "sum")),
    "moved": (MOVED, fakes.doubled_when_two_keys, ("outside", "output moved")),
    "moved, run again": (AGAIN, EveryOther(change=OFF), ("outside", "output, run again")),
    "not a number": (alone(NotANumber("output", HERE)), changed(output=0.0), ("type", "output")),
    "same bits": (alone(SameBits()), EveryOther(change=LAST_BIT), ("bits", "output")),
    "inputs unchanged": (alone(InputsUnchanged()), told(changed_inputs=("key",)), ("input", "key")),
    "returned as": (alone(ReturnedAs()), told(dtypes={"output": "float64"}), ("type", "output")),
    "returned where": (alone(ReturnedAs()), told(devices={"output": "cuda"}), ("type", "output")),
    "refused": (alone(Refused("nothing")), changed(output=0.0), ("accepted", "")),
    "without rounding": (alone(WithoutRounding(), two_keys(1.0, -1.0)), changed(output=1e-30), OUT),
}
# What is right is not always the reference as it is.
RIGHT: dict[str, Change] = {"not a number": fakes.not_a_number, "refused": fakes.raising}


def outcomes(trial: Trial, of: Subject | Change) -> Iterator[Outcome]:
    """What the trial comes to, as it is and read back."""
    read = trial_from_data(msgspec.json.decode(msgspec.json.encode(trial_to_data(trial))))
    for one in (trial, read):
        subject = replace(of, calls=0) if isinstance(of, Fake) else Fake(change=of)  # type: ignore[arg-type]
        yield run_trial(one, Held(subject, subject.ledger)).outcome


@pytest.mark.parametrize("name", CASES)
def test_an_expectation_is_met_by_the_right_kernel_and_finds_the_wrong_one(name: str) -> None:
    trial, wrong, kind = CASES[name]
    met, met_again = outcomes(trial, RIGHT.get(name, lambda call, seen: seen))
    assert met.status == "held"
    assert repr(met) == repr(met_again)
    found, found_again = outcomes(trial, wrong)
    assert kind in found.kinds
    assert repr(found) == repr(found_again)
    # What an expectation finds can be told apart by its name in a record.
    assert all(label in trial.expect[0].finds for label in {j.tensor for j in met.judgements})


def test_own_masks_are_counted_over_their_seeds() -> None:
    call = next(c for n in range(9) if (c := registered()["dropout-own-mask"].prepare(two_keys(0.0, 1.0))) is not None)
    expect = OwnMasks(0.5, 7, seeds=40)
    assert len(expect.calls(call)) == 40
    right = NumpyScores()
    assert run_trial(Trial(call, tensors=(), expect=(expect,)), Held(right, right.ledger)).outcome.status == "held"


def test_every_expectation_is_among_the_cases() -> None:
    registered()
    ours = {n for n, kind in EXPECTATIONS.items() if kind.__module__.startswith("attnspec.")}
    assert ours == {type(e).__name__ for trial, _, _ in CASES.values() for e in trial.expect} | {"OwnMasks"}


@pytest.mark.parametrize(
    ("parts", "total"),
    [
        ([1.7e308, 1.7e308, -1.7e308], 1.7e308),  # only a partial sum leaves the range
        ([1.7e308, 1.7e308], math.inf),
        ([1.0, 2.0**-60, -1.0], 2.0**-60),
        ([5e-324, 5e-324], 1e-323),
        ([1.0, math.inf], math.nan),
    ],
)
def test_a_sum_near_the_largest_number_is_shown_the_same_by_record_and_snippet(
    parts: list[float], total: float
) -> None:
    row = np.array(parts).reshape(1, 1, -1, 1)
    # Only the tensors of a run are read.
    run = SimpleNamespace(tensors={"grad_value": row})
    assert repr(SUM._one(run, (0, 0, 0))) == repr(total)  # type: ignore[arg-type]
    shown = replace(fakes.judgement("sum"), index=(0, 0, 0))
    scope: dict[str, object] = {"math": math, "seen": {"grad_value": row}}
    exec("\n".join(SUM.source(shown, None)), scope)  # type: ignore[arg-type]
    assert repr(scope["got"]) == repr(total)


@pytest.mark.parametrize("axis", [None, 2])
def test_weights_that_stand_for_many_entries_are_written_out(axis: int | None) -> None:
    value = np.array([1.0, 2.0]).reshape(1, 1, 2, 1)
    total = Total("sum", (("grad_value", HALF),), axis, np.zeros(()), np.zeros(()), 2)
    index = () if axis is None else (0, 0, 0)
    scope: dict[str, object] = {"math": math, "seen": {"grad_value": value}}
    exec("\n".join(total.source(replace(fakes.judgement("sum"), index=index), Trial(CALL))), scope)
    run = SimpleNamespace(tensors={"grad_value": value})
    assert scope["got"] == total._one(run, index) == 1.5  # type: ignore[arg-type]
