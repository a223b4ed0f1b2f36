"""How a plan is drawn: one sampler over a chooser, so that Hypothesis and a seeded generator share it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import numpy as np

T = TypeVar("T")


class Chooser(Protocol):
    """Picks one of the options. Options stand simplest first, because Hypothesis shrinks towards the first.

    Samplers make the same choices in the same order whatever was chosen before, of one option where nothing is left to
    choose: then lowering any one choice leaves the others in place, and shrinking does not get stuck.
    """

    def __call__(self, name: str, options: Sequence[T], /) -> T:
        """The chosen option of the choice called `name`."""
        ...


def weighted(*pairs: tuple[T, int]) -> tuple[T, ...]:
    """Options repeated by weight, in the order given: shrinks to the first, samples in proportion."""
    return tuple(option for option, weight in pairs for _ in range(weight))


def generator_chooser(rng: np.random.Generator) -> Chooser:
    """A chooser that picks uniformly with the generator, without Hypothesis."""

    def choose(name: str, options: Sequence[T], /) -> T:
        return options[0] if len(options) == 1 else options[int(rng.integers(len(options)))]

    return choose


def one_of(field: str, value: object, options: Sequence[object]) -> None:
    """Raise a ValueError that names the field, the value and the options, unless the value is among them."""
    if value not in options:
        raise ValueError(f"{field} = {value!r}: expected one of {', '.join(str(o) for o in options)}")
