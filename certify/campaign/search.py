"""Search: one property at one dtype, case by case, until a case refutes it or the budget is spent."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from attnspec.certify.campaign.budget import PATIENCE, UNDECIDED_SHARE
from attnspec.certify.claims import Skip
from attnspec.certify.errors import CertifyError, OwnFault
from attnspec.certify.evidence.certificate import PropertyRecord, SkipRecord, State, TensorRecord
from attnspec.certify.evidence.events import CaseChecked
from attnspec.certify.evidence.numbers import ratio_out
from attnspec.certify.trials.engine import Checked, check
from attnspec.certify.trials.held import Held
from attnspec.certify.trials.outcome import CaseStatus, Outcome, no_such_call
from attnspec.certify.trials.property import Property
from attnspec.certify.trials.trial import Trial
from attnspec.pyspec import AttentionCall

# Labels of a call's origin that number it instead of classing it.
_NUMBERS = frozenset({"seed", "index", "fill_seed"})

Draw = Callable[[int], AttentionCall]


@dataclass(frozen=True, eq=False)
class Case:
    """One case after its check; `call` is the prepared call, or None where the claim does not speak of the draw."""

    index: int
    outcome: Outcome
    call: AttentionCall | None = None
    trial: Trial | None = None

    @property
    def status(self) -> CaseStatus:
        """What the case counts as."""
        return self.outcome.status

    @property
    def signature(self) -> tuple[object, ...]:
        """What a repetition must reproduce: the status, the failures, and every ratio bit for bit."""
        judged = tuple((j.tensor, j.state, j.worst.hex()) for j in self.outcome.judgements)
        return (self.status, self.outcome.failures, judged)


def check_case(prop: Property, held: Held, draw: Draw, index: int) -> Case:
    """Draw input `index`, prepare it and check it. Whatever this package itself gets wrong is an OwnFault."""
    try:
        call = prop.prepare(draw(index))
        if call is None:
            return Case(index, Outcome(skip=no_such_call("the claim does not speak of the drawn call")))
        return case_of(index, check(prop, call, held))
    except CertifyError:
        raise
    except Exception as error:
        raise OwnFault(
            f"property {prop.id}, case {index}: {type(error).__name__}: {error} "
            "(a fault of this package, not of the subject; ATTNSPEC_DEBUG=1 shows where)"
        ) from error


def case_of(index: int, checked: Checked) -> Case:
    """The case behind a check."""
    return Case(index, checked.outcome, checked.call, checked.trial)


@dataclass
class Tally:
    """What the cases of one property and dtype add up to."""

    prop: Property
    dtype: str
    traits: Callable[[AttentionCall], frozenset[str]] = lambda call: frozenset()
    drawn: int = 0
    tested: list[int] = field(default_factory=list)
    vacuous: int = 0
    undecided: int = 0
    skips: Counter[Skip] = field(default_factory=Counter)
    worst: float | None = None
    worst_index: int | None = None
    tensors: dict[str, _TensorTally] = field(default_factory=dict)
    coverage: dict[str, Counter[str]] = field(default_factory=dict)
    kernels: Counter[str] = field(default_factory=Counter)
    signatures: dict[int, tuple[object, ...]] = field(default_factory=dict)
    refuting: Case | None = None
    finished: bool = False

    def add(self, case: Case) -> CaseChecked:
        """Count a case; return the event that tells of it."""
        self.drawn += 1
        ratios: dict[str, float] = {}
        elements = 0
        outcome = case.outcome
        if outcome.skip is not None:
            self.skips[outcome.skip] += 1
        else:
            self._count(case)
            for j in outcome.judgements:
                kept = self.tensors.setdefault(j.tensor, _TensorTally())
                if j.tensor in outcome.vacuous and not j.outside:
                    kept.vacuous += 1
                else:
                    kept.add(j.worst, j.size)
                    ratios[j.tensor] = max(j.worst, ratios.get(j.tensor, 0.0))
                    elements += j.size
            worst = max(ratios.values(), default=None)
            if worst is not None and (self.worst is None or worst > self.worst):
                self.worst, self.worst_index = worst, case.index
        labels: dict[str, str] = {}
        if case.status == "refuted":
            self.refuting = case
            assert case.call is not None
            labels = dict(case.call.origin)
        reason = None if outcome.skip is None else outcome.skip.text
        return CaseChecked(
            self.prop.id, self.dtype, case.index, case.status, reason, ratios, elements, labels
        )  # fmt: skip

    def _count(self, case: Case) -> None:
        assert case.call is not None
        if case.status == "vacuous":
            self.vacuous += 1
            return
        if case.status == "undecided":
            self.undecided += 1
            return
        self.tested.append(case.index)
        self.signatures[case.index] = case.signature
        self.kernels[case.outcome.kernel] += 1
        for label, name in case.call.origin.items():
            if label not in _NUMBERS:
                self.coverage.setdefault(label, Counter())[name] += 1
        self.coverage.setdefault("trait", Counter()).update(self.traits(case.call))

    @property
    def state(self) -> State:
        """What the row of the certificate says."""
        if self.refuting is not None:
            return "refuted"
        if not self.finished:
            return "unfinished"
        if self.undecided > UNDECIDED_SHARE * (self.undecided + len(self.tested)):
            return "undecided"
        if self.tested:
            return "held"
        # Where all that was drawn lay outside the claim, or the property does not speak of it, nothing is missing.
        return "not_run" if self.vacuous else "not_covered"

    def record(self, *, counterexample: str | None = None, note: str | None = None) -> PropertyRecord:
        """The row of the certificate."""
        return PropertyRecord(
            id=self.prop.id,
            dtype=self.dtype,
            state=self.state,
            claim=self.prop.claim,
            theorem=self.prop.theorem,
            basis=self.prop.basis,
            cases=len(self.tested),
            drawn=self.drawn,
            vacuous=self.vacuous,
            undecided=self.undecided,
            skips=skip_records(self.skips),
            worst=ratio_out(self.worst),  # type: ignore[arg-type]
            worst_index=self.worst_index,
            tensors={name: t.record() for name, t in sorted(self.tensors.items())},
            counterexample=counterexample,
            note=note,
        )


@dataclass
class _TensorTally:
    worst: float | None = None
    cases: int = 0
    elements: int = 0
    vacuous: int = 0

    def add(self, worst: float, size: int) -> None:
        self.worst = worst if self.worst is None else max(self.worst, worst)
        self.cases += 1
        self.elements += size

    def record(self) -> TensorRecord:
        return TensorRecord(
            worst=ratio_out(self.worst),  # type: ignore[arg-type]
            cases=self.cases,
            elements=self.elements,
            vacuous=self.vacuous,
        )


def search(
    tally: Tally,
    held: Held,
    draw: Draw,
    cases: int,
    tell: Callable[[CaseChecked], None],
    deadline: float | None = None,
) -> None:
    """Check cases 0, 1, 2, … into the tally. Stops at a refutation, when `cases` are drawn and one was tested, or
    after PATIENCE times as many draws; leaves `tally.finished` false when the deadline (time.monotonic) passes.
    """
    for index in range(cases * PATIENCE):
        if index >= cases and tally.tested:
            break
        if deadline is not None and time.monotonic() > deadline:
            return
        tell(tally.add(check_case(tally.prop, held, draw, index)))
        if tally.refuting is not None:
            break
    tally.finished = True


def skip_records(skips: Mapping[Skip, int]) -> list[SkipRecord]:
    """Reasons with the number of cases, most first."""
    ordered = sorted(skips.items(), key=lambda item: (-item[1], item[0].kind, item[0].text))
    return [SkipRecord(kind=s.kind, feature=s.feature, text=s.text, cases=n) for s, n in ordered]


def not_covered(prop: Property, dtype: str, reason: Skip) -> PropertyRecord:
    """The row of a property that the subject cannot be held to."""
    return PropertyRecord(
        id=prop.id,
        dtype=dtype,
        state="not_covered",
        claim=prop.claim,
        theorem=prop.theorem,
        basis=prop.basis,
        cases=0,
        drawn=0,
        vacuous=0,
        undecided=0,
        skips=[],
        worst=None,
        worst_index=None,
        tensors={},
        note=reason.text,
    )


def together(records: list[PropertyRecord]) -> dict[str, dict[str, TensorRecord]]:
    """By dtype and tensor: the largest ratio over all properties, with how much was judged."""
    found: dict[str, dict[str, _TensorTally]] = {}
    for record in records:
        for name, tensor in record.tensors.items():
            kept = found.setdefault(record.dtype, {}).setdefault(name, _TensorTally())
            if tensor.worst is not None:
                worst = float("inf") if tensor.worst == "infinite" else float(tensor.worst)
                kept.worst = worst if kept.worst is None else max(kept.worst, worst)
            kept.cases += tensor.cases
            kept.elements += tensor.elements
            kept.vacuous += tensor.vacuous
    return {dtype: {n: t.record() for n, t in sorted(kept.items())} for dtype, kept in found.items()}
