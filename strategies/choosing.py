"""How a plan is drawn: one sampler over a chooser, so that Hypothesis and a seeded generator share it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import numpy as np

T = TypeVar("T")


class Chooser(Protocol):
    """Picks one of the options. Options stand simplest first, because Hypothesis shrinks towards the first."""

    def __call__(self, name: str, options: Sequence[T], /) -> T:
        """The chosen option of the choice called `name`."""
        ...


def weighted(*pairs: tuple[T, int]) -> tuple[T, ...]:
    """Options repeated by weight, in the order given: shrinks to the first, samples in proportion."""
    return tuple(option for option, weight in pairs for _ in range(weight))


def generator_chooser(rng: np.random.Generator) -> Chooser:
    """A chooser that picks uniformly with the generator, without Hypothesis."""

    def choose(name: str, options: Sequence[T], /) -> T:
        return options[int(rng.integers(len(options)))]

    return choose


def one_of(field: str, value: object, options: Sequence[object]) -> None:
    """Raise a ValueError that names the field, the value and the options, unless the value is among them."""
    if value not in options:
        raise ValueError(f"{field} = {value!r}: expected one of {', '.join(str(o) for o in options)}")
