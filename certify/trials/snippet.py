"""A failing trial as a program: it prints what came, what is exact and what is allowed, and asserts it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from attnspec.certify.conventions.program import Program, file_of
from attnspec.certify.trials.expectations import entry
from attnspec.certify.trials.outcome import Failure, Outcome
from attnspec.certify.trials.trial import Expectation, Trial
from attnspec.pyspec import AttentionCall, Judgement

Programs = Callable[[AttentionCall, "Mapping[str, np.ndarray] | None"], Program]


def snippet(trial: Trial, outcome: Outcome, program: Programs) -> str:
    """A self-contained file that runs the trial and fails while what was found is there.

    program: a call, and raw arrays in place of its tensors, as the subject is handed them.
    """
    shown: Judgement | Failure | None = outcome.failures[0] if outcome.failures else outcome.worst
    programs = {"run": program(trial.call, trial.raw or None)}
    if trial.other is not None:
        programs["run_before"] = program(trial.other, None)
    lines = _lines(trial, shown)
    seeds: list[AttentionCall] = next((e.calls(trial.call) for e in trial.expect if hasattr(e, "calls")), [])
    if seeds and isinstance(shown, Failure):
        programs |= {f"seed_{n}": program(call, None) for n, call in enumerate(seeds)}
        lines.insert(0, f"seeds = [{', '.join(f'seed_{n}' for n in range(len(seeds)))}]")
    text = file_of(programs, watch=isinstance(shown, Failure) and shown.kind == "input")
    needed = [f"import {m}" for m in ("math",) if f"{m}." in "\n".join(lines) and f"import {m}\n" not in text]
    return "\n".join([*needed, text.rstrip("\n"), "", "", *lines]) + "\n"


def _lines(trial: Trial, shown: Judgement | Failure | None) -> list[str]:
    """The statements after the functions that make the runs."""
    lines = [] if trial.other is None else ["before = run_before()"]
    kind = "" if shown is None else (shown.kind if isinstance(shown, Failure) else shown.tensor)
    expectation = next((e for e in trial.expect if kind in e.finds), None)
    if isinstance(shown, Failure) and shown.kind == "accepted":
        what = shown.text.replace('"', "'")
        return ["try:", "    run()", "except Exception as error:", '    print(f"refused: {error}")', "else:",
                f'    raise AssertionError("{what}")']  # fmt: skip
    lines.append("seen = run()")
    if isinstance(shown, Failure):
        return [*lines, *_failure(shown, expectation, trial), 'print("this does not fail any more")']
    if shown is None or shown.index is None:
        return lines
    found = [f"got = {entry(shown.tensor, shown.index)}"] if expectation is None else expectation.source(shown, trial)
    lower, upper = allowed(shown)
    exact = f"{shown.exact[0]!r} to {shown.exact[1]!r}" if shown.exact[0] != shown.exact[1] else repr(shown.exact[0])
    where = f"{shown.tensor}[{', '.join(map(str, shown.index))}]"
    return [
        *lines,
        *found,
        f'print(f"{where} = {{got!r}}, exact {exact}, allowed {lower!r} to {upper!r}")',
        f"assert {_number(lower)} <= got <= {_number(upper)}",
    ]


def _failure(shown: Failure, expectation: Expectation | None, trial: Trial) -> list[str]:
    """What asserts a failure; an exception, an end or a hang of the run needs no words."""
    if shown.kind == "missing":
        return [f'assert seen.get("{shown.tensor}") is not None, "{shown.tensor} is missing"']
    if shown.kind == "shape":
        from attnspec.certify.trials.run import wanted_shapes

        shape = wanted_shapes(trial.call)[shown.tensor]
        return [f'assert tuple(seen["{shown.tensor}"].shape) == {shape!r}, tuple(seen["{shown.tensor}"].shape)']
    return [] if expectation is None else expectation.source(shown, trial)


def allowed(judged: Judgement) -> tuple[float, float]:
    """The interval that an entry may lie in, as floats: where it was proved to lie outside, it does not reach it."""
    (low, high), bound = judged.exact, judged.bound
    lower, upper = (low, high) if bound == 0 else (low - bound, high + bound)
    if judged.outside and math.isfinite(judged.observed):
        # The proof compares at a higher precision than these sums.
        if judged.observed > high:
            upper = min(upper, math.nextafter(judged.observed, -math.inf))
        elif judged.observed < low:
            lower = max(lower, math.nextafter(judged.observed, math.inf))
    return lower, upper


def _number(value: float) -> str:
    return repr(value) if math.isfinite(value) else f"float('{value!r}')"
