"""Search and reduction: what counts as tested, when to stop, and which smaller calls count."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from attnspec.certify.properties.model import Bench, Outcome, Property

from attnspec.certify.campaign.budget import PATIENCE, audited, cases_for, reduction_budget, seed_for
from attnspec.certify.campaign.minimise import kind, minimise
from attnspec.certify.campaign.search import Tally, check_case, search
from attnspec.certify.evidence.certificate import left_out_as_known, read_certificate
from attnspec.certify.observation import Observation
from attnspec.pyspec import AttentionCall, Judgement, make_call
from attnspec.strategies import reduce_call
from tests.certify import fakes
from tests.certify.conftest import Certify
from tests.certify.fakes import Fake


def call_of(keys: int, value: float = 1.0) -> AttentionCall:
    shape = (1, 1, keys, 1)
    return make_call(np.ones((1, 1, 1, 1)), np.ones(shape), np.full(shape, value))


def judgement(tensor: str, *, inside: bool = True, worst: float = 0.5) -> Judgement:
    state = "inside" if inside else "outside"
    return Judgement(
        tensor=tensor, state=state, worst=worst, index=(0,), observed=1.0, exact=(1.0, 1.0), bound=1.0,
        outside_count=0 if inside else 1, size=1,
    )  # fmt: skip


def prop(check: object, **fields: object) -> Property:
    return Property(id="p", claim="It holds.", theorem=None, basis="a test", check=check, **fields)  # type: ignore[arg-type]


def run(of: Property, cases: int = 4) -> Tally:
    fake = Fake()
    tally = Tally(of, "float32")
    search(tally, Bench(fake, fake.ledger), lambda index: call_of(index), cases, lambda event: None)
    return tally


def test_input_numbers_not_found_testable_are_drawn_past_but_not_for_ever() -> None:
    late = run(prop(lambda call, bench: Outcome(skipped="few keys") if call.axes.keys < 7 else Outcome()))
    assert (late.drawn, late.tested, late.record().state) == (8, [7], "held")
    never = run(prop(lambda call, bench: Outcome(skipped="never")))
    assert (never.drawn, never.record().state) == (4 * PATIENCE, "not_run")
    assert never.record().skipped == {"never": 4 * PATIENCE}


def test_a_draw_that_the_claim_does_not_speak_of_is_skipped() -> None:
    some = run(prop(lambda call, bench: Outcome(), prepare=lambda call: None if call.axes.keys % 2 else call))
    assert some.tested == [0, 2]
    assert some.record().skipped == {"the claim does not speak of the drawn call": 2}


def test_draws_outside_the_subjects_claim_are_not_covered() -> None:
    def out(call: AttentionCall) -> AttentionCall:
        return call.but(dtype="bfloat16")

    record = run(prop(lambda call, bench: Outcome(), prepare=out)).record()
    assert record.state == "not_covered"
    assert record.not_covered == {"dtype bfloat16 not claimed by fake": 4 * PATIENCE}


def test_known_divergences_are_not_covered_wherever_they_are_seen() -> None:
    reason = "known divergence off by one: one is added (F0)"
    record = run(prop(lambda call, bench: Outcome(skipped=reason))).record()
    assert (record.state, record.not_covered) == ("not_covered", {reason: 4 * PATIENCE})
    assert left_out_as_known([record, record]) == {reason: 8 * PATIENCE}


def test_a_bound_that_says_nothing_tests_nothing() -> None:
    empty = Outcome(judgements=(judgement("output"),), vacuous=("output",))
    tally = run(prop(lambda call, bench: empty))
    assert (tally.record().state, tally.vacuous, tally.record().cases) == ("not_run", 4 * PATIENCE, 0)
    half = Outcome(judgements=(judgement("output"), judgement("lse", worst=0.25)), vacuous=("output",))
    record = run(prop(lambda call, bench: half)).record()
    assert (record.state, record.cases, record.worst) == ("held", 4, 0.25)
    assert (record.tensors["output"].cases, record.tensors["output"].vacuous) == (0, 4)


def test_a_refutation_stops_the_search() -> None:
    wrong = Outcome(judgements=(judgement("output", inside=False, worst=3.0),))
    tally = run(prop(lambda call, bench: wrong if call.axes.keys == 2 else Outcome()), cases=10)
    assert (tally.drawn, tally.record().state, tally.record().worst) == (3, "refuted", 3.0)
    assert tally.refuting is not None
    assert tally.refuting.index == 2


def test_a_case_is_told_apart_by_every_bit() -> None:
    fake = Fake()
    cases = [
        check_case(
            prop(lambda call, bench, w=worst: Outcome(judgements=(judgement("output", worst=w),))),
            Bench(fake, fake.ledger),
            lambda index: call_of(1),
            0,
        )
        for worst in (0.5, 0.5, np.nextafter(0.5, 1))
    ]
    assert cases[0].signature == cases[1].signature
    assert cases[0].signature != cases[2].signature


def reduced(of: Property, change: fakes.Change, call: AttentionCall, **fields: object) -> AttentionCall:
    bench = Bench(Fake(change=change), Fake().ledger)
    outcome = of.check(call, bench)
    assert outcome.refuted
    smallest, again = minimise(of, bench, reduce_call, call, outcome, Fake(), 500, **fields)  # type: ignore[arg-type]
    assert again.refuted
    return smallest


def test_reduction_keeps_what_the_property_demands() -> None:
    def ones(call: AttentionCall) -> AttentionCall:
        return call.but(value=np.ones_like(call.value))

    unit = prop(fakes.check_output, prepare=ones)
    smallest = reduced(unit, fakes.doubled_when_two_keys, ones(call_of(9)))
    assert smallest.axes.keys == 2
    assert (smallest.value == 1.0).all()


def test_reduction_never_leads_to_what_refutes_a_right_kernel() -> None:
    # A check that is wrong for calls of one key: it would be the smaller call.
    def check(call: AttentionCall, bench: Bench) -> Outcome:
        if call.axes.keys == 1:
            return Outcome(judgements=(judgement("output", inside=False, worst=9.0),))
        return fakes.check_output(call, bench)

    assert reduced(prop(check), fakes.doubled_when_two_keys, call_of(9)).axes.keys == 2


def test_reduction_keeps_the_kind_of_failure() -> None:
    def raises_on_few(call: AttentionCall, seen: Observation) -> Observation:
        return fakes.raising(call, seen) if call.axes.keys < 5 else fakes.doubled_when_two_keys(call, seen)

    assert reduced(prop(fakes.check_output), raises_on_few, call_of(9)).axes.keys == 5


def test_reduction_starts_from_a_call_that_refutes_another_claim() -> None:
    known = call_of(3, value=5.0)
    tried: list[int] = []

    def change(call: AttentionCall, seen: Observation) -> Observation:
        tried.append(call.axes.keys)
        return fakes.doubled_when_two_keys(call, seen)

    smallest = reduced(prop(fakes.check_output), change, call_of(200), known=[known])
    assert smallest.axes.keys == 2
    assert max(tried[1:]) == 3


def test_a_failure_that_comes_and_goes_is_kept_as_found() -> None:
    seen_once: list[int] = []

    def once(call: AttentionCall, seen: Observation) -> Observation:
        seen_once.append(1)
        return fakes.doubled_when_two_keys(call, seen) if len(seen_once) == 1 else seen

    bench = Bench(Fake(change=once), Fake().ledger)
    call, of = call_of(9), prop(fakes.check_output)
    outcome = of.check(call, bench)
    assert minimise(of, bench, reduce_call, call, outcome, Fake(), 500) == (call, outcome)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (Outcome(broken="shape [2, 3]: 5 rows"), Outcome(broken="shape [4]: 17 rows"), True),
        (Outcome(broken="shape [2]"), Outcome(broken="it raised"), False),
        (Outcome((judgement("output", inside=False),)), Outcome((judgement("output", inside=False),)), True),
        (Outcome((judgement("output", inside=False),)), Outcome((judgement("lse", inside=False),)), False),
        (Outcome((judgement("output", inside=False),)), Outcome(broken="it raised"), False),
    ],
)
def test_kinds_of_failure(one: Outcome, other: Outcome, same: bool) -> None:
    assert bool(kind(one) & kind(other)) == same


def test_once_refuted_the_other_claims_get_fewer_cases(certify: Certify, tmp_path: Path) -> None:
    # Three claims that a raising kernel breaks, then one that it cannot break.
    broken = [replace(fakes.CALM, id=f"broken-{i}") for i in range(3)]
    sound = replace(fakes.CALM, id="sound", check=lambda call, bench: Outcome())
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
