"""What checks come to: judgements of tensors, failures that no number tells, and reasons why nothing was tested."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from attnspec.certify.claims import Skip
from attnspec.pyspec import Judgement

FailureKind = Literal[
    "raised",  # the subject raised an exception
    "died",  # its process ended
    "timeout",  # it did not answer
    "missing",  # a tensor was not returned
    "shape",  # a tensor has another shape
    "type",  # a tensor has another dtype, or is on another device
    "input",  # an input was overwritten
    "bits",  # the same call gave other bits
    "accepted",  # a call without meaning was answered
    "chance",  # random choices that a right subject makes next to never
]

CaseStatus = Literal["held", "refuted", "undecided", "vacuous", "skipped", "not_covered"]


@dataclass(frozen=True)
class Failure:
    """Something wrong that is no number outside its interval: its kind, the tensor it is about ("": none), in words."""

    kind: FailureKind
    tensor: str
    text: str


def badness(judgement: Judgement) -> tuple[bool, float]:
    """What judgements are ordered by: refuted ones above all others, then error ÷ bound."""
    return (judgement.outside, judgement.worst)


@dataclass(frozen=True)
class Outcome:
    """Result of one trial, or of all trials of a case.

    vacuous: tensors whose bound was so wide that the check says nothing. mistakes: names of the wrong models that a
    refuted result agrees with. skip: why nothing was tested.
    """

    judgements: tuple[Judgement, ...] = ()
    failures: tuple[Failure, ...] = ()
    skip: Skip | None = None
    vacuous: tuple[str, ...] = ()
    mistakes: tuple[str, ...] = ()
    kernel: str = "unobserved"

    @property
    def refuted(self) -> bool:
        """Did the subject break the claim?"""
        return bool(self.failures) or any(j.outside for j in self.judgements)

    @property
    def worst(self) -> Judgement | None:
        """The judgement with the largest error ÷ bound, refuted ones first."""
        return max(self.judgements, key=badness, default=None)

    @property
    def kinds(self) -> frozenset[tuple[str, str]]:
        """What is wrong, without numbers: (kind of failure or "outside", tensor)."""
        return frozenset((f.kind, f.tensor) for f in self.failures) | frozenset(
            ("outside", j.tensor) for j in self.judgements if j.outside
        )

    @property
    def status(self) -> CaseStatus:
        """What the case counts as. Only what was proved inside its bounds, none of them empty, is held."""
        if self.refuted:
            return "refuted"
        if self.skip is not None:
            return "skipped" if self.skip.kind == "no_such_call" else "not_covered"
        if any(j.undecided for j in self.judgements):
            return "undecided"
        if self.judgements and all(j.tensor in self.vacuous for j in self.judgements):
            return "vacuous"
        return "held"

    @property
    def text(self) -> str | None:
        """What is wrong in words, where words say more than the numbers: failures, else the mistakes that fit."""
        if self.failures:
            return "; ".join(f.text for f in self.failures)
        return " or ".join(self.mistakes) or None


def joined(outcomes: list[Outcome]) -> Outcome:
    """One outcome of several trials of a case; it is skipped only when all of them are."""
    ran = [o for o in outcomes if o.skip is None]
    if not ran:
        return outcomes[0]
    return Outcome(
        judgements=tuple(j for o in ran for j in o.judgements),
        failures=tuple(f for o in ran for f in o.failures),
        vacuous=tuple(sorted({v for o in ran for v in o.vacuous})),
        mistakes=next((o.mistakes for o in ran if o.mistakes), ()),
        kernel=ran[0].kernel,
    )


def no_such_call(text: str) -> Skip:
    """The claim does not speak of this call."""
    return Skip("no_such_call", "", text)
