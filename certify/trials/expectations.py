"""What may be expected of a run's numbers besides agreement: known values, sums, and differences of two runs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from attnspec.certify.conventions.program import number
from attnspec.certify.trials.outcome import Failure
from attnspec.certify.trials.run import wanted_shapes
from attnspec.certify.trials.trial import Expectation, Run, Trial, recorded
from attnspec.pyspec import Judgement
from attnspec.pyspec.oracle.judgement import judge_exact


def entry(tensor: str, index: tuple[int, ...] | None, of: str = "seen") -> str:
    """Source of one entry of an observed tensor as a Python float."""
    return number(f'{of}["{tensor}"]', index or ())


@recorded
@dataclass(frozen=True, eq=False)
class Values(Expectation):
    """A tensor has these values where they count, within its bound.

    allowed: "bound", the tensor's own; "nothing"; or "overflow", nothing unless that bound is infinite, since an
    overflow may have met them.
    """

    tensor: str
    exact: np.ndarray
    where: np.ndarray
    allowed: Literal["bound", "nothing", "overflow"] = "bound"

    @property
    def finds(self) -> tuple[str, ...]:
        """Names of judgements, or kinds of failures."""
        return (self.tensor,)

    def judge(self, run: Run) -> Iterator[Judgement | Failure]:
        """One judgement; none where the tensor was not returned."""
        if self.tensor in run.tensors:
            bound = run.allowed[self.tensor]
            if self.allowed == "overflow":
                bound = np.where(np.isinf(bound), np.inf, 0.0)
            bound = np.where(self.where, 0.0 if self.allowed == "nothing" else bound, np.inf)
            yield judge_exact(self.tensor, run.tensors[self.tensor], np.broadcast_to(self.exact, bound.shape), bound)

    def source(self, shown: Judgement | Failure, trial: Trial) -> list[str]:
        """The entry itself."""
        assert isinstance(shown, Judgement)
        return [f"got = {entry(self.tensor, shown.index)}"]


def zeros(tensor: str, where: np.ndarray) -> Values:
    """A tensor is exactly zero there, unless an overflow may meet it."""
    return Values(tensor, np.zeros((1,) * where.ndim), where, "overflow")


@recorded
@dataclass(frozen=True, eq=False)
class Between(Expectation):
    """Every entry of a tensor lies between two values, within its bound."""

    tensor: str
    low: np.ndarray
    high: np.ndarray

    @property
    def finds(self) -> tuple[str, ...]:
        """Names of judgements, or kinds of failures."""
        return (self.tensor,)

    def judge(self, run: Run) -> Iterator[Judgement | Failure]:
        """One judgement against the nearest value that is allowed."""
        found = run.tensors[self.tensor]
        nearest = np.clip(np.where(np.isnan(found), np.inf, found), self.low, self.high)
        yield judge_exact(self.tensor, found, nearest, run.allowed[self.tensor])

    def source(self, shown: Judgement | Failure, trial: Trial) -> list[str]:
        """The entry itself."""
        assert isinstance(shown, Judgement)
        return [f"got = {entry(self.tensor, shown.index)}"]


@recorded
@dataclass(frozen=True, eq=False)
class Total(Expectation):
    """A weighted sum over tensors equals a known number, within the bounds of what is summed.

    terms: tensors with their weights (None: ones). axis: the axis summed over, or None for everything. exact, error:
    the sum's value and how far that may be off. count: how many numbers are summed, each of which may round the sum.
    """

    label: str
    terms: tuple[tuple[str, np.ndarray | None], ...]
    axis: int | None
    exact: np.ndarray
    error: np.ndarray
    count: int

    @property
    def finds(self) -> tuple[str, ...]:
        """Names of judgements, or kinds of failures."""
        return (self.label,)

    def judge(self, run: Run) -> Iterator[Judgement | Failure]:
        """One judgement of the sums."""
        found, slack, sizes = (np.zeros(()) for _ in range(3))
        with np.errstate(all="ignore"):
            for name, weights in self.terms:
                part = run.tensors[name] if weights is None else weights * run.tensors[name]
                wide = run.allowed[name] if weights is None else np.abs(weights) * run.allowed[name]
                found = found + part.sum(axis=self.axis)
                slack = slack + wide.sum(axis=self.axis)
                sizes = sizes + np.abs(part).sum(axis=self.axis)
            # The sums themselves are taken in float64.
            allowed = slack + self.error + 2.0**-53 * self.count * sizes
        allowed = np.where(np.isnan(allowed), np.inf, allowed)
        judged = judge_exact(self.label, np.asarray(found), self.exact, allowed)
        if judged.index is not None:
            judged = replace(judged, observed=self._one(run, judged.index))
        yield judged

    def _one(self, run: Run, index: tuple[int, ...]) -> float:
        """The sum at one place, rounded once: the number that any program finds again."""
        parts: list[float] = []
        for name, weights in self.terms:
            array = run.tensors[name]
            row = _row(array, self.axis, index)
            parts += (row if weights is None else row * self._factors(weights, array.shape, index)).tolist()
        return _fsum(parts)

    def _factors(self, weights: np.ndarray, shape: tuple[int, ...], index: tuple[int, ...]) -> np.ndarray:
        """The weights of what is summed at one place of a tensor of that shape."""
        return _row(np.broadcast_to(weights, shape), self.axis, index)

    def source(self, shown: Judgement | Failure, trial: Trial) -> list[str]:
        """The same sum, rounded once."""
        assert isinstance(shown, Judgement)
        lines = ["parts = []"]
        for name, weights in self.terms:
            at = "" if self.axis is None else _sliced(self.axis, shown.index or ())
            lines.append(f'row = [float(x) for x in seen["{name}"]{at}.flatten()]')
            if weights is not None:
                factors = self._factors(weights, wanted_shapes(trial.call)[name], shown.index or ())
                lines.append(f"row = [x * w for x, w in zip(row, {factors.tolist()!r}, strict=True)]")
            lines.append("parts += row")
        return [
            *lines,
            "unit = 2.0**-64 if any(abs(x) > 2.0**900 for x in parts) else 1.0",
            "got = math.fsum(x * unit for x in parts) / unit if all(map(math.isfinite, parts)) else math.nan",
        ]


def _row(array: np.ndarray, axis: int | None, index: tuple[int, ...]) -> np.ndarray:
    return array.ravel() if axis is None else np.moveaxis(array, axis, -1)[index]


def _sliced(axis: int, index: tuple[int, ...]) -> str:
    places = [str(n) for n in index]
    places.insert(axis % (len(index) + 1), ":")
    return f"[{', '.join(places)}]"


def _fsum(parts: list[float]) -> float:
    # Of numbers near the largest one, fsum raises on partial sums that leave the range, even where the sum does not.
    unit = 2.0**-64 if any(abs(x) > 2.0**900 for x in parts) else 1.0
    return math.fsum(x * unit for x in parts) / unit if all(map(math.isfinite, parts)) else math.nan


@recorded
@dataclass(frozen=True, eq=False)
class Moved(Expectation):
    """A tensor differs from that of the other call by a known number, within the bounds of both runs.

    again: the other call is the same one, and the bound of one run is allowed.
    """

    tensor: str
    by: np.ndarray
    error: np.ndarray
    again: bool = False

    @property
    def label(self) -> str:
        """What the judgement is called."""
        return f"{self.tensor}, run again" if self.again else f"{self.tensor} moved"

    @property
    def finds(self) -> tuple[str, ...]:
        """Names of judgements, or kinds of failures."""
        return (self.label,)

    def judge(self, run: Run) -> Iterator[Judgement | Failure]:
        """One judgement of the difference."""
        assert run.before is not None
        assert run.trial.other is not None
        if self.tensor not in run.tensors or self.tensor not in run.before.tensors:
            return
        with np.errstate(all="ignore"):
            found = run.tensors[self.tensor] - run.before.tensors[self.tensor]
            allowed = run.allowed[self.tensor] + self.error
            if not self.again:
                allowed = allowed + run.held.bounds(run.trial.other)[self.tensor] + 2.0**-52 * np.abs(found)
        allowed = np.where(np.isnan(allowed), np.inf, allowed)
        yield judge_exact(self.label, found, np.broadcast_to(self.by, found.shape), allowed)

    def source(self, shown: Judgement | Failure, trial: Trial) -> list[str]:
        """The difference of two entries."""
        assert isinstance(shown, Judgement)
        return [f"got = {entry(self.tensor, shown.index)} - {entry(self.tensor, shown.index, 'before')}"]
