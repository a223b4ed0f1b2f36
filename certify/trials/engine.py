"""The engine: runs the trials of a property on a call, judges them, and says what refuted it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from attnspec.certify.claims import Skip
from attnspec.certify.trials.held import Held
from attnspec.certify.trials.outcome import Failure, Outcome, joined, no_such_call
from attnspec.certify.trials.property import Property
from attnspec.certify.trials.run import failures, is_vacuous, judged_tensors
from attnspec.certify.trials.trial import Expectation, Run, Trial, take
from attnspec.pyspec import AttentionCall, Judgement
from attnspec.pyspec.calls.formats import get_format


@dataclass(frozen=True, eq=False)
class Seen:
    """What a trial came to, as its generator receives it: the outcome, and the observed tensors (none if not run)."""

    outcome: Outcome
    tensors: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Checked:
    """A property checked on a call. `trial` is the one that refuted it, with `outcome` then its own."""

    call: AttentionCall
    outcome: Outcome
    trial: Trial | None = None


def check(prop: Property, call: AttentionCall, held: Held) -> Checked:
    """Run the trials of the property on a prepared call, until one refutes it."""
    skip = held.uncovered(call) if prop.within_claim else None
    if skip is not None:
        return Checked(call, Outcome(skip=skip))
    outcomes: list[Outcome] = []
    trials = prop.trials(call, held.claims)
    try:
        trial = next(trials)
        while True:
            seen = run_trial(trial, held, prop)
            if seen.outcome.refuted:
                trials.close()
                return Checked(call, seen.outcome, trial)
            outcomes.append(seen.outcome)
            trial = trials.send(seen)
    except StopIteration as end:
        if not outcomes:
            return Checked(call, Outcome(skip=no_such_call(end.value or "the claim does not speak of this call")))
    return Checked(call, joined(outcomes))


def run_trial(trial: Trial, held: Held, prop: Property | None = None) -> Seen:
    """Run one trial and judge it; a refuted one is diagnosed by its property."""
    skip = held.uncovered(trial.call if trial.claimed_as is None else trial.claimed_as)
    if skip is not None:
        return Seen(Outcome(skip=skip))
    before = None
    if trial.other is not None:
        before = held.run(trial.other)
        wrong = tuple(failures(before, trial.other, held.claims))
        if wrong:
            return Seen(Outcome(failures=wrong, kernel=before.kernel))
    seen = held.run(trial.call, trial.raw or None)
    run = Run(trial, seen, held, before)
    outcome = _judged(run)
    if outcome.refuted and not outcome.failures and prop is not None and prop.diagnose is not None:
        # What a subject draws by itself stands in the call whose bounds are allowed.
        call = trial.call if trial.bounds_of is None else trial.bounds_of
        outcome = replace(outcome, mistakes=tuple(prop.diagnose(call, seen.tensors, _around(run))))
    return Seen(outcome, seen.tensors)


def _judged(run: Run) -> Outcome:
    trial, seen, claims = run.trial, run.seen, run.held.claims
    refusals = tuple(e for e in trial.expect if e.refusal)
    if refusals:
        return Outcome(failures=_failures(run, refusals), kernel=seen.kernel)
    wrong = tuple(failures(seen, trial.call, claims))
    if wrong:
        return Outcome(failures=wrong, kernel=seen.kernel)
    names = judged_tensors(trial, seen, claims)
    if not names and not trial.expect and trial.tensors != ():
        return Outcome(skip=Skip("not_claimed", "", "the subject returns none of the tensors in question"))
    judgements = [_agreement(run, name) for name in names]
    vacuous = [n for n in names if is_vacuous(trial.call, n, run.allowed[n])]
    found = [x for e in trial.expect for x in e.judge(run)]
    return Outcome(
        judgements=(*judgements, *(x for x in found if isinstance(x, Judgement))),
        failures=tuple(x for x in found if isinstance(x, Failure)),
        vacuous=tuple(vacuous),
        kernel=seen.kernel,
    )


def _failures(run: Run, expectations: tuple[Expectation, ...]) -> tuple[Failure, ...]:
    return tuple(x for e in expectations for x in e.judge(run) if isinstance(x, Failure))


def _agreement(run: Run, name: str) -> Judgement:
    """Is the tensor within its allowed errors of the exact one, where it counts?"""
    trial, bound = run.trial, run.allowed[name]
    counts = trial.where.get(name)
    if counts is not None:
        bound = np.where(counts, bound, np.inf)
    index = trial.views.get(name, ())
    return run.held.oracle(trial.exact_call).judge(name, run.tensors[name], bound, lambda a: take(a, index))


def _around(run: Run) -> dict[str, np.ndarray]:
    """Allowed errors of wrong tensors: one may be larger than the right one, and rounds by its own size."""
    call = run.trial.call
    unit = (call.axes.keys + 8) * get_format(call.dtype).unit_roundoff
    with np.errstate(all="ignore"):
        return {n: b + unit * np.abs(run.tensors[n]) for n, b in run.allowed.items() if n in run.tensors}
