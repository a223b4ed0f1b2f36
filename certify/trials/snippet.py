"""A failing trial as a program: it prints what came, what is exact and what is allowed, and asserts it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from attnspec.certify.conventions.program import Program, Report, file_of
from attnspec.certify.trials.expectations import entry
from attnspec.certify.trials.outcome import Failure, Outcome
from attnspec.certify.trials.run import wanted_shapes
from attnspec.certify.trials.trial import Expectation, Trial
from attnspec.pyspec import AttentionCall, Judgement

# What the run must tell besides its tensors where such a failure is asserted.
_REPORTS: dict[str, Report] = {"input": "overwritten", "type": "types"}

Programs = Callable[[AttentionCall, "Mapping[str, np.ndarray] | None"], Program]


def snippet(trial: Trial, outcome: Outcome, program: Programs, limit: float | None = None) -> str:
    """A self-contained file that runs the trial and fails while what was found is there.

    program: a call, and raw arrays in place of its tensors, as the subject is handed them. limit: seconds in which an
    answer was expected, where none came.
    """
    shown: Judgement | Failure | None = outcome.failures[0] if outcome.failures else outcome.worst
    programs = {"run": program(trial.call, trial.raw or None)}
    if trial.other is not None:
        programs["run_before"] = program(trial.other, None)
    if isinstance(shown, Failure):
        seeds = [call for e in trial.expect for call in e.calls(trial.call)]
        programs |= {f"run_seed_{n}": program(call, None) for n, call in enumerate(seeds)}
        lines, report = _failure(trial, shown, list(programs)), _REPORTS.get(shown.kind)
        if shown.kind == "timeout" and limit is not None:
            lines = [
                f"faulthandler.dump_traceback_later({limit!r}, exit=True)",
                *lines,
                "faulthandler.cancel_dump_traceback_later()",
            ]
    else:
        lines, report = _number_lines(trial, shown), None
    text = file_of(programs, report=report)
    said = "\n".join(lines)
    needed = [f"import {m}" for m in ("faulthandler", "math") if f"{m}." in said and f"import {m}\n" not in text]
    return "\n".join([*needed, text.rstrip("\n"), "", "", *lines]) + "\n"


def _runs(trial: Trial) -> list[str]:
    return ["seen = run()"] if trial.other is None else ["before = run_before()", "seen = run()"]


def _number_lines(trial: Trial, shown: Judgement | None) -> list[str]:
    """What prints and asserts a number."""
    if shown is None or shown.index is None:
        return _runs(trial)
    expectation = _finding(trial, shown.tensor)
    found = [f"got = {entry(shown.tensor, shown.index)}"] if expectation is None else expectation.source(shown, trial)
    (low, high), (lower, upper) = shown.exact, allowed(shown.exact, shown.bound, shown.observed, shown.outside)
    exact = f"{low!r} to {high!r}" if low != high else repr(low)
    where = f"{shown.tensor}[{', '.join(map(str, shown.index))}]"
    return [
        *_runs(trial),
        *found,
        f'print(f"{where} = {{got!r}}, exact {exact}, allowed {lower!r} to {upper!r}")',
        f"assert {_number(lower)} <= got <= {_number(upper)}",
    ]


def _failure(trial: Trial, shown: Failure, runs: list[str]) -> list[str]:
    """What asserts a failure; an exception, an end or a hang of a run needs no words."""
    expectation = _finding(trial, shown.kind)
    if expectation is None:
        lines = [f"for one in ({', '.join(runs)},):", "    seen = one()", *_returned(trial, shown)]
    else:
        lines = [*([] if expectation.refusal else _runs(trial)), *expectation.source(shown, trial)]
    return [*lines, 'print("this does not fail any more")']


def _returned(trial: Trial, shown: Failure) -> list[str]:
    """Asserts that a tensor is there, in its shape."""
    if shown.kind == "missing":
        return [f'    assert seen.get("{shown.tensor}") is not None, "{shown.tensor} is missing"']
    if shown.kind == "shape":
        shape = wanted_shapes(trial.call)[shown.tensor]
        return [f'    assert tuple(seen["{shown.tensor}"].shape) == {shape!r}, tuple(seen["{shown.tensor}"].shape)']
    return []


def _finding(trial: Trial, kind: str) -> Expectation | None:
    """The expectation that makes such judgements or failures; None where it is agreement, or a run by itself."""
    return next((e for e in trial.expect if kind in e.finds), None)


def allowed(exact: tuple[float, float], bound: float, observed: float, outside: bool) -> tuple[float, float]:
    """The interval that an entry may lie in, as floats: where it was proved to lie outside, it does not reach it."""
    low, high = exact
    lower, upper = (low, high) if bound == 0 else (low - bound, high + bound)
    # The proof compares at a higher precision than these sums.
    if outside and observed > high:
        upper = min(upper, math.nextafter(observed, -math.inf))
    elif outside and observed < low:
        lower = max(lower, math.nextafter(observed, math.inf))
    return lower, upper


def _number(value: float) -> str:
    return repr(value) if math.isfinite(value) else f"float('{value!r}')"
