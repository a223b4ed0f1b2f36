"""The engine: which trials of a property are run, what of a run is judged, and what they add up to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from attnspec.certify.claims import Capabilities, Skip
from attnspec.certify.observation import Observation
from attnspec.certify.trials import Held, Trial, check, claim, run_trial
from attnspec.certify.trials import property as property_module
from attnspec.certify.trials.contracts import Refused
from attnspec.certify.trials.expectations import Moved
from attnspec.pyspec import AttentionCall, make_call
from attnspec.strategies.derived import take_keys
from tests.certify import fakes
from tests.certify.fakes import Fake, Finds, call_of, finding, judgement, prop, silent

INSIDE, OUTSIDE = judgement("output"), judgement("output", "outside", 3.0)
UNDECIDED = judgement("output", "undecided", 1.0)


def held_by(fake: Fake) -> Held:
    return Held(fake, fake.ledger)


def telling(call: AttentionCall, *found) -> Trial:
    """A trial that comes to what it is told."""
    return Trial(call, tensors=(), expect=(Finds(found),))


def rising(keys: int = 3) -> AttentionCall:
    """Values 1, 2, 3, …, all keys equal: the output is their mean."""
    value = np.arange(1.0, keys + 1).reshape(1, 1, keys, 1)
    return make_call(np.ones((1, 1, 1, 1)), np.ones((1, 1, keys, 1)), value, grad_output=np.ones((1, 1, 1, 1)))


def test_the_first_trial_that_refutes_is_the_last_that_runs() -> None:
    fake, closed = Fake(), []

    def trials(call: AttentionCall):
        try:
            for found in (INSIDE, OUTSIDE, judgement("lse", "outside")):
                yield telling(call, found)
        finally:
            closed.append(True)

    found = check(prop(trials), call_of(2), held_by(fake))
    assert (fake.calls, closed) == (2, [True])
    assert found.outcome.judgements == (OUTSIDE,)
    assert found.trial is not None
    assert found.trial.expect == (Finds((OUTSIDE,)),)
    assert found.outcome.kinds == {("outside", "output")}


def test_what_refutes_nothing_is_joined() -> None:
    def trials(call: AttentionCall):
        (empty,) = fakes.VACUOUS.trials(call, Fake().capabilities)
        yield telling(call, INSIDE)
        yield empty
        yield telling(call, judgement("lse"))

    found = check(prop(trials), call_of(2), held_by(Fake()))
    assert [j.tensor for j in found.outcome.judgements] == ["output", "output", "lse"]
    assert (found.outcome.vacuous, found.outcome.kernel, found.outcome.status) == (("output",), "numpy", "held")
    assert found.trial is None


def test_a_case_is_skipped_only_where_every_trial_lies_outside_the_claim() -> None:
    outside = Skip("not_claimed", "dtype", "dtype bfloat16 not claimed by fake")

    def trials(of: tuple[str, ...]):
        return lambda call: (telling(call.but(dtype=dtype), INSIDE) for dtype in of)

    fake = Fake()
    some = check(prop(trials(("bfloat16", "float32", "bfloat16"))), call_of(2), held_by(fake)).outcome
    assert (some.skip, some.status, some.judgements, fake.calls) == (None, "held", (INSIDE,), 1)
    none = check(prop(trials(("bfloat16", "bfloat16"))), call_of(2), held_by(fake)).outcome
    assert (none.skip, none.status, fake.calls) == (outside, "not_covered", 1)


def test_a_call_outside_the_claim_is_asked_nothing_unless_the_property_says_so() -> None:
    def trials(call: AttentionCall):
        yield Trial(call.but(dtype="float32"))

    fake, low = Fake(), call_of(2).but(dtype="bfloat16")
    assert check(prop(trials), low, held_by(fake)).outcome.status == "not_covered"
    assert check(prop(trials, within_claim=False), low, held_by(fake)).outcome.status == "held"
    assert fake.calls == 1


def test_another_call_may_be_what_is_claimed() -> None:
    low = call_of(2).but(dtype="bfloat16")
    assert run_trial(Trial(low), held_by(Fake())).outcome.status == "not_covered"
    assert run_trial(Trial(low, claimed_as=call_of(2)), held_by(Fake())).outcome.status == "held"
    assert run_trial(Trial(call_of(2), claimed_as=low), held_by(Fake())).outcome.status == "not_covered"


@pytest.mark.parametrize(("reason", "text"), [("too few", "too few"), (None, "the claim does not speak of this call")])
def test_a_property_without_a_trial_says_nothing(reason: str | None, text: str) -> None:
    found = check(prop(silent(reason)), call_of(2), held_by(Fake()))
    assert found.outcome.skip == Skip("no_such_call", "", text)
    assert found.outcome.status == "skipped"


def test_a_generator_is_sent_what_each_of_its_trials_came_to() -> None:
    sent = []

    def trials(call: AttentionCall):
        sent.append((yield Trial(call)))
        sent.append((yield telling(call.but(dtype="bfloat16"), INSIDE)))
        double = call.but(value=call.value * sent[0].tensors["output"])
        sent.append((yield Trial(double)))

    assert check(prop(trials), rising(), held_by(Fake())).outcome.status == "held"
    assert [s.outcome.status for s in sent] == ["held", "not_covered", "held"]
    assert [float(s.tensors["output"][0, 0, 0, 0]) for s in (sent[0], sent[2])] == [2.0, 4.0]
    assert sent[1].tensors == {}


def test_the_other_call_is_run_before_and_must_not_fail() -> None:
    asked: list[AttentionCall] = []

    def spy(call: AttentionCall, seen: Observation) -> Observation:
        asked.append(call)
        return seen if call.axes.keys == 2 else fakes.raising(call, seen)

    one, other = rising(2), rising(2).but(value=3.0 + rising(2).value)
    by = Moved("output", np.full((1, 1, 1, 1), -3.0), np.zeros((1, 1, 1, 1)))
    assert run_trial(Trial(one, other=other, expect=(by,)), held_by(Fake(change=spy))).outcome.status == "held"
    assert asked == [other, one]
    found = run_trial(Trial(one, other=rising(3), expect=(by,)), held_by(Fake(change=spy))).outcome
    assert [(f.kind, f.tensor) for f in found.failures] == [("raised", "")]
    assert len(asked) == 3


def test_views_say_where_the_entries_stand_in_the_exact_tensors() -> None:
    call, order = rising(), np.array([2, 0, 1])
    turned = take_keys(call, order)
    views = dict.fromkeys(("grad_key", "grad_value"), ((2, order),))
    assert run_trial(Trial(turned, against=call, views=views), held_by(Fake())).outcome.status == "held"
    assert run_trial(Trial(turned, against=call), held_by(Fake())).outcome.kinds == {("outside", "grad_key")}


def test_only_the_entries_that_count_are_judged() -> None:
    call = rising()
    loud = call.but(value=np.where(np.arange(3)[:, None] == 1, 9.0, call.value))
    names = ("grad_key",)
    counted = {"grad_key": np.zeros((1, 1, 3, 1), dtype=bool)}
    assert run_trial(Trial(loud, against=call, tensors=names), held_by(Fake())).outcome.refuted
    assert not run_trial(Trial(loud, against=call, tensors=names, where=counted), held_by(Fake())).outcome.refuted
    counted["grad_key"][0, 0, 1] = True
    found = run_trial(Trial(loud, against=call, tensors=names, where=counted), held_by(Fake())).outcome
    assert found.worst is not None
    assert (found.worst.index, found.worst.outside_count) == ((0, 0, 1, 0), 1)


def test_bounds_are_those_of_the_call_unless_another_is_named_and_grow_with_the_error_of_tanh() -> None:
    call = rising().but(softcap=2.0)
    fake = Fake(capabilities=replace(Fake().capabilities, softcap=True))

    def bound(trial: Trial) -> float:
        (judged,) = run_trial(replace(trial, tensors=("output",)), held_by(fake)).outcome.judgements
        return judged.bound

    plain = bound(Trial(call))
    assert 0.0 < plain < bound(Trial(call, tanh_error=100.0))
    assert bound(Trial(call, bounds_of=call.but(value=8.0 * call.value))) == pytest.approx(8.0 * plain, rel=0.01)


def test_raw_arrays_are_what_the_subject_is_handed() -> None:
    given: list[Mapping[str, np.ndarray] | None] = []

    class Spy(Fake):
        def run(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Observation:
            given.append(raw)
            return super().run(call, raw)

    value = np.full((1, 1, 3, 1), np.nan)
    assert run_trial(Trial(rising(), raw={"value": value}), held_by(Spy())).outcome.refuted
    run_trial(Trial(rising()), held_by(Spy()))
    assert given[0] is not None
    assert given[0]["value"] is value
    assert given[1] is None


def test_a_refusal_must_be_an_exception_and_nothing_else_is_judged() -> None:
    def ended(ending: str):
        return lambda call, seen: Observation(error="it is over", ending=ending)  # type: ignore[arg-type]

    trial = Trial(rising(), expect=(Refused("nothing fits"), Finds((OUTSIDE,))))
    outcomes = [
        run_trial(trial, held_by(Fake(change=change))).outcome
        for change in (ended("raised"), ended("died"), ended("timeout"), lambda call, seen: seen)
    ]
    assert [o.kinds for o in outcomes] == [set(), {("died", "")}, {("timeout", "")}, {("accepted", "")}]
    assert outcomes[3].text == "nothing fits: an answer came back, expected an exception"


def test_a_run_that_failed_is_not_judged_by_numbers() -> None:
    def without(name: str):
        return lambda call, seen: replace(seen, tensors={n: t for n, t in seen.tensors.items() if n != name})

    def flat(call: AttentionCall, seen: Observation) -> Observation:
        return replace(seen, tensors={**seen.tensors, "output": np.zeros(7)})

    for change, kind, text in (
        (fakes.raising, ("raised", ""), "the subject raised: ValueError: <script>alert(1)</script>"),
        (without("grad_key"), ("missing", "grad_key"), "grad_key is missing"),
        (flat, ("shape", "output"), "output has shape [7]: expected [1, 1, 1, 1]"),
    ):
        found = run_trial(Trial(rising(), expect=(Finds((OUTSIDE,)),)), held_by(Fake(change=change))).outcome
        assert (found.kinds, found.text, found.judgements) == ({kind}, text, ())


def test_tensors_that_a_subject_does_not_return_are_not_asked_of_it() -> None:
    found = run_trial(Trial(rising(), tensors=("lse",)), held_by(Fake())).outcome
    assert found.skip is not None
    assert (found.skip.kind, found.status) == ("not_claimed", "not_covered")
    assert run_trial(Trial(rising(), tensors=()), held_by(Fake())).outcome.status == "held"


@pytest.mark.parametrize(
    ("found", "status"),
    [
        ((INSIDE, UNDECIDED), "undecided"),
        ((UNDECIDED, OUTSIDE), "refuted"),
        ((INSIDE, INSIDE), "held"),
        ((), "held"),
    ],
)
def test_undecided_is_neither_held_nor_refuted(found: tuple, status: str) -> None:
    outcome = check(prop(finding(*found)), call_of(2), held_by(Fake())).outcome
    assert (outcome.status, outcome.refuted) == (status, status == "refuted")


def test_a_case_of_empty_bounds_is_vacuous_and_one_more_tensor_makes_it_tell() -> None:
    assert check(fakes.VACUOUS, call_of(2), held_by(Fake())).outcome.status == "vacuous"
    assert check(fakes.VACUOUS, call_of(2), held_by(Fake(change=fakes.not_a_number))).outcome.status == "refuted"


def test_numbers_that_refute_are_diagnosed_and_failures_speak_for_themselves() -> None:
    seen: list[tuple[AttentionCall, float, float]] = []

    def diagnose(call: AttentionCall, observed: Mapping[str, np.ndarray], allowed: Mapping[str, np.ndarray]):
        seen.append((call, float(observed["output"].max()), float(allowed["output"].max())))
        yield "twice as much"

    named = prop(diagnose=diagnose)
    found = check(named, rising(), held_by(Fake(change=fakes.doubled_when_two_keys))).outcome
    assert (found.mistakes, found.text) == (("twice as much",), "twice as much")
    assert seen[0][1] == 4.0
    # A wrong tensor may be larger than the right one, and is allowed the roundings of its own size.
    assert seen[0][2] > Held(Fake(), Fake().ledger).bounds(rising())["output"].max()
    assert check(named, rising(), held_by(Fake())).outcome.mistakes == ()
    assert check(named, rising(), held_by(Fake(change=fakes.raising))).outcome.mistakes == ()
    assert len(seen) == 1


def test_claims_are_registered_once_with_a_foundation_and_without_modifiers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(property_module, "_REGISTRY", {})
    seen: list[Capabilities] = []

    @claim("one", "It holds.", theorem="forward_over_duals")
    def one(call: AttentionCall):
        yield Trial(call)

    @claim("two", "It holds beside a softcap.", basis="a test", keep=("softcap",), share=2.0)
    def two(call: AttentionCall, claims: Capabilities):
        seen.append(claims)
        yield Trial(call)

    known = property_module._REGISTRY
    for name, words in (("one", "registered twice"), ("three", "names no theorem")):
        with pytest.raises(ValueError, match=words):
            claim(name, "It holds.")(one)
    assert list(known) == ["one", "two"]
    call = rising().but(softcap=2.0, sink=np.zeros(1))
    kept = [known[name].prepare(call) for name in known]
    assert [(c.softcap, c.sink is None) for c in kept if c is not None] == [(None, True), (2.0, True)]
    claims = replace(Fake().capabilities, softcap=True)
    for name in known:
        assert check(known[name], rising(), held_by(Fake(capabilities=claims))).outcome.status == "held"
    assert (seen, known["two"].share) == ([claims], 2.0)
