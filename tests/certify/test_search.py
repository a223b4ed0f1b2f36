"""Search and reduction: what counts as tested, when to stop, and which smaller calls count."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from attnspec.certify.campaign.budget import PATIENCE, audited, cases_for, reduction_budget, seed_for
from attnspec.certify.campaign.minimise import Reduction, minimise
from attnspec.certify.campaign.search import Tally, check_case, search
from attnspec.certify.evidence.certificate import PropertyRecord, left_out_as_known, read_certificate
from attnspec.certify.observation import Observation
from attnspec.certify.subject import KnownDivergence
from attnspec.certify.trials import Checked, Failure, Held, Outcome, Property, Trial, check
from attnspec.certify.trials.contracts import Refused
from attnspec.pyspec import AttentionCall
from attnspec.strategies import reduce_call
from tests.certify import fakes
from tests.certify.conftest import Certify
from tests.certify.fakes import Fake, Finds, call_of, finding, judgement, prop, silent


def run(of: Property, cases: int = 4, fake: Fake | None = None) -> Tally:
    subject = fake or Fake()
    tally = Tally(of, "float32")
    search(tally, Held(subject, subject.ledger), lambda index: call_of(index + 1), cases, lambda event: None)
    return tally


def skips(record: PropertyRecord) -> list[tuple[str, str, int]]:
    return [(s.kind, s.text, s.cases) for s in record.skips]


def test_calls_not_found_testable_are_drawn_past_but_not_for_ever() -> None:
    def from_seven_keys(call: AttentionCall):
        if call.axes.keys < 7:
            return "few keys"
        yield Trial(call, tensors=())

    late = run(prop(from_seven_keys))
    assert (late.drawn, late.tested, late.record().state) == (7, [6], "held")
    never = run(prop(silent("never")))
    # The claim speaks of none of them: that is no gap in what was tested.
    assert (never.drawn, never.record().state) == (4 * PATIENCE, "not_covered")
    assert skips(never.record()) == [("no_such_call", "never", 4 * PATIENCE)]


def test_a_draw_that_the_claim_does_not_speak_of_is_skipped() -> None:
    some = run(prop(finding(), prepare=lambda call: None if call.axes.keys % 2 else call))
    assert some.tested == [1, 3]
    assert skips(some.record()) == [("no_such_call", "the claim does not speak of the drawn call", 2)]


def test_draws_outside_the_subjects_claim_are_not_covered() -> None:
    record = run(prop(finding(), prepare=lambda call: call.but(dtype="bfloat16"))).record()
    assert record.state == "not_covered"
    assert skips(record) == [("not_claimed", "dtype bfloat16 not claimed by fake", 4 * PATIENCE)]


def test_known_divergences_are_not_covered_wherever_they_are_seen() -> None:
    reason = "known divergence off by one: one is added (F0)"
    fake = Fake(known_divergences=(KnownDivergence("off by one", "one is added", "F0", lambda call: True),))
    record = run(prop(), fake=fake).record()
    assert (record.state, skips(record)) == ("not_covered", [("known_divergence", reason, 4 * PATIENCE)])
    assert left_out_as_known([record, record]) == {reason: 8 * PATIENCE}


def test_a_bound_that_says_nothing_tests_nothing() -> None:
    tally = run(fakes.VACUOUS)
    assert (tally.record().state, tally.vacuous, tally.record().cases) == ("not_run", 4 * PATIENCE, 0)

    def half(call: AttentionCall):
        (empty,) = fakes.VACUOUS.trials(call, Fake().capabilities)
        yield replace(empty, expect=(Finds((judgement("lse", worst=0.25),)),))

    record = run(prop(half)).record()
    assert (record.state, record.cases, record.worst) == ("held", 4, 0.25)
    assert (record.tensors["output"].cases, record.tensors["output"].vacuous) == (0, 4)


def test_undecided_cases_are_counted_apart_and_many_of_them_leave_the_row_undecided() -> None:
    tally = run(fakes.UNDECIDED, cases=5)
    assert (tally.tested, tally.undecided, tally.record().undecided) == ([], 5 * PATIENCE, 5 * PATIENCE)
    assert tally.record().state == "undecided"

    def once_in(many: int):
        def trials(call: AttentionCall):
            state = "undecided" if call.axes.keys == many else "inside"
            yield Trial(call, tensors=(), expect=(Finds((judgement("output", state),)),))

        return run(prop(trials), cases=many).record()

    assert [(r.state, r.cases, r.undecided) for r in map(once_in, (4, 20))] == [("undecided", 3, 1), ("held", 19, 1)]


def test_a_refutation_stops_the_search() -> None:
    def wrong_at_three(call: AttentionCall):
        state = "outside" if call.axes.keys == 3 else "inside"
        yield Trial(call, tensors=(), expect=(Finds((judgement("output", state, worst=3.0),)),))

    tally = run(prop(wrong_at_three), cases=10)
    assert (tally.drawn, tally.record().state, tally.record().worst) == (3, "refuted", 3.0)
    assert tally.refuting is not None
    assert tally.refuting.index == 2
    assert tally.refuting.trial is not None
    assert tally.refuting.trial.call is tally.refuting.call


def test_a_case_is_told_apart_by_every_bit() -> None:
    fake = Fake()
    cases = [
        check_case(prop(finding(found)), Held(fake, fake.ledger), lambda index: call_of(1), 0)
        for found in (
            judgement("output", worst=0.5),
            judgement("output", worst=0.5),
            judgement("output", worst=np.nextafter(0.5, 1)),
            judgement("output", "undecided", worst=0.5),
            Failure("bits", "output", "it changed"),
        )
    ]
    assert cases[0].signature == cases[1].signature
    assert len({case.signature for case in cases}) == 4


def reduced(of: Property, change: fakes.Change, call: AttentionCall, **fields: object) -> AttentionCall:
    held = Held(Fake(change=change), Fake().ledger)
    found = check(of, call, held)
    assert found.outcome.refuted
    how = Reduction(of, held, reduce_call, Fake(), 500, **fields)  # type: ignore[arg-type]
    smallest = minimise(how, found)
    assert smallest.outcome.refuted
    assert smallest.trial is not None
    return smallest.call


def test_reduction_keeps_what_the_property_demands() -> None:
    def ones(call: AttentionCall) -> AttentionCall:
        return call.but(value=np.ones_like(call.value))

    smallest = reduced(prop(prepare=ones), fakes.doubled_when_two_keys, ones(call_of(9)))
    assert smallest.axes.keys == 2
    assert (smallest.value == 1.0).all()


def test_reduction_never_leads_to_what_refutes_a_right_kernel() -> None:
    # A check that is wrong for calls of one key: it would be the smaller call.
    def wrong_of_one_key(call: AttentionCall):
        if call.axes.keys == 1:
            yield Trial(call, tensors=(), expect=(Finds((judgement("output", "outside", worst=9.0),)),))
        yield Trial(call, tensors=("output",))

    assert reduced(prop(wrong_of_one_key), fakes.doubled_when_two_keys, call_of(9)).axes.keys == 2


def test_reduction_keeps_the_kind_of_failure() -> None:
    def raises_on_few(call: AttentionCall, seen: Observation) -> Observation:
        return fakes.raising(call, seen) if call.axes.keys < 5 else fakes.doubled_when_two_keys(call, seen)

    assert reduced(prop(), raises_on_few, call_of(9)).axes.keys == 5


def test_reduction_starts_from_a_call_that_refutes_another_claim() -> None:
    known = call_of(3, value=5.0)
    tried: list[int] = []

    def change(call: AttentionCall, seen: Observation) -> Observation:
        tried.append(call.axes.keys)
        return fakes.doubled_when_two_keys(call, seen)

    smallest = reduced(prop(), change, call_of(200), known=[known])
    assert smallest.axes.keys == 2
    assert max(tried[1:]) == 3


def test_a_failure_that_comes_and_goes_is_kept_as_found() -> None:
    seen_once: list[int] = []

    def once(call: AttentionCall, seen: Observation) -> Observation:
        seen_once.append(1)
        return fakes.doubled_when_two_keys(call, seen) if len(seen_once) == 1 else seen

    held = Held(Fake(change=once), Fake().ledger)
    found: Checked = check(prop(), call_of(9), held)
    assert found.outcome.refuted
    assert minimise(Reduction(prop(), held, reduce_call, Fake(), 500), found) is found


OUTSIDE = Outcome((judgement("output", "outside"),))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (Outcome(failures=(Failure("shape", "output", "[2, 3]"),)),
         Outcome(failures=(Failure("shape", "output", "[4]"),)), True),
        (Outcome(failures=(Failure("shape", "output", "[2]"),)),
         Outcome(failures=(Failure("shape", "lse", "[2]"),)), False),
        (Outcome(failures=(Failure("shape", "output", "[2]"),)),
         Outcome(failures=(Failure("raised", "", "it raised"),)), False),
        (OUTSIDE, Outcome((judgement("output", "outside", worst=7.0),)), True),
        (OUTSIDE, Outcome((judgement("lse", "outside"),)), False),
        (OUTSIDE, Outcome((judgement("output", "undecided"),)), False),
        (OUTSIDE, Outcome(failures=(Failure("raised", "", "it raised"),)), False),
    ],
)  # fmt: skip
def test_kinds_of_failure(one: Outcome, other: Outcome, same: bool) -> None:
    assert bool(one.kinds & other.kinds) == same


def test_once_refuted_the_other_claims_get_fewer_cases(certify: Certify, tmp_path: Path) -> None:
    # Three claims that a raising kernel breaks, then one that it cannot break.
    broken = [replace(fakes.CALM, id=f"broken-{i}") for i in range(3)]

    def refused(call: AttentionCall):
        yield Trial(call, expect=(Refused("nothing"),))

    sound = prop(refused, id="sound")
    world = fakes.parts(Fake(change=fakes.raising), properties=(*broken, sound))
    options = ("run", "fake", "--dtype", "float32", "--examples", "40")
    assert certify(*options, parts=world).exit_code == 1
    assert read_certificate(tmp_path / "cert/fake").properties[-1].cases == 10
    # What is waived settles nothing: there the verdict still hangs on the rest.
    (tmp_path / "known.toml").write_text(
        '[[divergence]]\nproperty = "broken-*"\nsubject = "fake"\ndtype = "*"\nowner = "me"\nreason = "known"\n'
        "expires = 2999-01-01\n"
    )
    assert certify(*options, "--known-divergences", "known.toml", parts=world).exit_code == 0
    assert read_certificate(tmp_path / "cert/fake").properties[-1].cases == 40


def test_budgets_and_seeds_are_fixed_numbers() -> None:
    # Changing these changes every stored index: the certificate format's version would have to change with them.
    assert seed_for(0, "forward-agreement", "float32") == seed_for(0, "forward-agreement", "float32")
    seeds = {seed_for(s, p, d) for s in (0, 1) for p in ("a", "b") for d in ("float32", "bfloat16")}
    assert len(seeds) == 8
    small = replace(fakes.OUTPUT, small=True)
    assert cases_for(small, "pr") < cases_for(fakes.OUTPUT, "pr") < cases_for(fakes.OUTPUT, "release")
    assert cases_for(fakes.OUTPUT, "release", examples=2) == 2
    assert reduction_budget(0) > reduction_budget(5) > reduction_budget(50) > 0
    assert audited(0, []) == []
    assert len(audited(0, [3])) == 1
    chosen = audited(0, list(range(200)))
    assert len(chosen) == 10
    assert chosen == audited(0, list(range(200)))
    assert chosen != audited(1, list(range(200)))
