"""`Trial`: one run of a subject and what is expected of it, as data; `Run`: what came of it, as expectations see it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import numpy as np

from attnspec.certify.observation import Observation
from attnspec.certify.trials.held import Held
from attnspec.certify.trials.outcome import Failure
from attnspec.pyspec import AttentionCall, Judgement

T = TypeVar("T")

# Classes of expectations by name, for reading trials back.
EXPECTATIONS: dict[str, type[Any]] = {}

# Positions along axes: entry i of the run's tensor is entry index[i] of the exact one.
IndexMap = tuple[tuple[int, np.ndarray], ...]


class Expectation(ABC):
    """Something that must hold of a run besides agreement; what is made of it is a frozen dataclass of plain data.

    `judge` says what is wrong with a run; `source` gives the statements that find the same in a program in which
    `seen` holds the run's tensors by name: they assign the number to `got`, or assert by themselves. refusal: the run
    must end in an exception; then nothing else is judged, and `source` makes the run itself.
    """

    refusal: ClassVar[bool] = False

    @property
    @abstractmethod
    def finds(self) -> tuple[str, ...]:
        """Names of its judgements, or kinds of its failures."""

    @abstractmethod
    def judge(self, run: Run) -> Iterator[Judgement | Failure]:
        """Judgements and failures."""

    def calls(self, call: AttentionCall) -> list[AttentionCall]:
        """Further calls that `judge` runs by itself, which a program has as run_seed_0, run_seed_1 and so on."""
        return []

    @abstractmethod
    def source(self, shown: Judgement | Failure, trial: Trial) -> list[str]:
        """Statements that find again what `judge` found."""


def recorded(kind: type[T]) -> type[T]:
    """Register a class of expectations, so that a trial with one can be written down and read back.

    Raises ValueError where another class has its name.
    """
    known = EXPECTATIONS.get(kind.__name__, kind)
    if (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):
        raise ValueError(f"an expectation {kind.__name__!r} is registered already")
    EXPECTATIONS[kind.__name__] = kind
    return kind


@dataclass(frozen=True, eq=False)
class Trial:
    """One run: what is run, against what, and what is expected.

    call: the call that is run. raw: arrays that replace its query, key or value before the run (NaN, other shapes or
    types). against: the call whose exact values count (default: the call). views: by tensor, where in the exact tensor
    the entries of the run's stand. tensors: those that must agree within the bounds of the call (None: all, (): none).
    where: by tensor, a boolean array of the entries that count. expect: what must hold besides. other: a call that is
    run before, for expectations that compare two runs. claimed_as: the call that must lie within the subject's claim
    (default: the call itself). bounds_of: the call whose bounds are allowed (default: the call itself). tanh_error:
    added to the ledger's, in its units.
    """

    call: AttentionCall
    raw: Mapping[str, np.ndarray] = field(default_factory=dict)
    against: AttentionCall | None = None
    views: Mapping[str, IndexMap] = field(default_factory=dict)
    tensors: tuple[str, ...] | None = None
    where: Mapping[str, np.ndarray] = field(default_factory=dict)
    expect: tuple[Expectation, ...] = ()
    other: AttentionCall | None = None
    claimed_as: AttentionCall | None = None
    bounds_of: AttentionCall | None = None
    tanh_error: float = 0.0

    @property
    def exact_call(self) -> AttentionCall:
        """The call whose exact values count."""
        return self.call if self.against is None else self.against


@dataclass(frozen=True, eq=False)
class Run:
    """A trial, what was observed, and the run made before it where the trial has one."""

    trial: Trial
    seen: Observation
    held: Held
    before: Observation | None = None

    @property
    def tensors(self) -> Mapping[str, np.ndarray]:
        """Observed tensors by name."""
        return self.seen.tensors

    @property
    def allowed(self) -> Mapping[str, np.ndarray]:
        """Allowed errors by tensor."""
        call = self.trial.call if self.trial.bounds_of is None else self.trial.bounds_of
        return self.held.bounds(call, self.trial.tanh_error)

    def again(self) -> Observation:
        """The same run once more."""
        return self.held.run(self.trial.call, self.trial.raw or None)


def take(array: np.ndarray, index: IndexMap) -> np.ndarray:
    """The entries at these positions; an axis of length one stands for every position."""
    for axis, positions in index:
        if array.shape[axis] != 1 or not positions.any():
            array = np.take(array, positions, axis=axis)
    return array
