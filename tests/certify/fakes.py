"""A small world for campaigns: subjects that are wrong on purpose, and properties that are quick to check."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from attnspec.certify.campaign.parts import Parts, default_parts
from attnspec.certify.claims import Capabilities, requires
from attnspec.certify.conventions.by_call import call_program
from attnspec.certify.conventions.program import Program
from attnspec.certify.errors import MissingDevice, UsageError
from attnspec.certify.evidence.certificate import ProofRecord, SelfCheckRecord
from attnspec.certify.observation import Observation
from attnspec.certify.subject import KnownDivergence, Subject
from attnspec.certify.subjects.numpy_reference import NumpyReference
from attnspec.certify.trials import Failure, Property, Trial
from attnspec.certify.trials.trial import Expectation, Run
from attnspec.pyspec import AttentionCall, Judgement, Ledger, make_call
from attnspec.pyspec.calls.formats import round_to

PROOFS = ProofRecord(
    compiled="not here", toolchain=None, digests={}, vectors="none here", agrees=None, theorems=[], detail="not here"
)
CHECKED = SelfCheckRecord(passed=True, caught=["a bug"], missed=[], lines=[])
FAILED = SelfCheckRecord(passed=False, caught=[], missed=["flipped mask"], lines=[])

Change = Callable[[AttentionCall, Observation], Observation]


@dataclass
class Fake:
    """The numpy reference with a change to what it returns, under a smaller claim."""

    name: str = "fake"
    change: Change = lambda call, seen: seen
    device: str = "cpu"
    capabilities: Capabilities = field(default_factory=lambda: Capabilities(dtypes=("float32", "float64")))
    known_divergences: tuple[KnownDivergence, ...] = ()
    calls: int = 0

    def identity(self) -> dict[str, str]:
        return {"version": "1 <b>bold</b>"}

    def ledger(self, dtype: str) -> Ledger:
        return NumpyReference().ledger(dtype)

    def run(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Observation:
        self.calls += 1
        return self.change(call, NumpyReference().run(call, raw))

    def program(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Program:
        return call_program(
            call,
            raw,
            "NumpyReference()",
            imports=("from attnspec.certify.subjects.numpy_reference import NumpyReference",),
        )


def doubled_when_two_keys(call: AttentionCall, seen: Observation) -> Observation:
    """Wrong from two keys on: the smallest refuting call has two keys and one value that is not zero."""
    if call.axes.keys < 2:
        return seen
    output = round_to(call.dtype, 2.0 * seen.tensors["output"])
    return replace(seen, tensors={**seen.tensors, "output": output})


def raising(call: AttentionCall, seen: Observation) -> Observation:
    """Raises inside the kernel."""
    return Observation(error="ValueError: <script>alert(1)</script>")


def not_a_number(call: AttentionCall, seen: Observation) -> Observation:
    """Returns NaN everywhere."""
    return replace(seen, tensors={n: np.full_like(t, np.nan) for n, t in seen.tensors.items()})


@dataclass(frozen=True)
class Finds(Expectation):
    """An expectation that finds what it is told to, whatever came."""

    found: tuple[Judgement | Failure, ...]

    @property
    def finds(self) -> tuple[str, ...]:
        return tuple(x.kind if isinstance(x, Failure) else x.tensor for x in self.found)

    def judge(self, run: Run) -> Iterator[Judgement | Failure]:
        yield from self.found

    def source(self, shown: Judgement | Failure, trial: Trial) -> list[str]:
        return []


def judgement(tensor: str, state: str = "inside", worst: float = 0.5) -> Judgement:
    """A judgement of one entry."""
    return Judgement(
        tensor=tensor, state=state, worst=worst, index=(0,), observed=1.0, exact=(1.0, 1.0), bound=1.0,
        outside_count=int(state == "outside"), undecided_count=int(state == "undecided"), size=1,
    )  # fmt: skip


def call_of(keys: int, value: float = 1.0) -> AttentionCall:
    """One query over so many keys, all of them ones."""
    shape = (1, 1, keys, 1)
    return make_call(np.ones((1, 1, 1, 1)), np.ones(shape), np.full(shape, value))


def output_alone(call: AttentionCall):
    yield Trial(call, tensors=("output",))


def finding(*found: Judgement | Failure, tensors: tuple[str, ...] = ()):
    """A generator of one trial that comes to that."""

    def trials(call: AttentionCall):
        yield Trial(call, tensors=tensors, expect=(Finds(found),))

    return trials


def silent(reason: str):
    """A generator that has nothing to say of any call, for that reason."""

    def trials(call: AttentionCall):
        return reason
        yield

    return trials


def prop(trials=output_alone, **fields: object) -> Property:
    """A property out of a generator that takes the call, with plain words for what is not given."""
    plain = {
        "id": "p", "claim": "It holds.", "theorem": None, "basis": "a test",
        "prepare": lambda call: call, "needs": lambda claims: None,
    }  # fmt: skip
    return Property(trials=lambda call, claims: trials(call), **{**plain, **fields})  # type: ignore[arg-type]


def _faulty(call: AttentionCall):
    raise ZeroDivisionError("in the check")
    yield


def _bound_of_huge_values(call: AttentionCall):
    yield Trial(call, tensors=("output",), bounds_of=call.but(value=np.full_like(call.value, 2.0**100)))


OUTPUT = prop(id="output", claim="The output is right & exact.", theorem="forward_over_duals", basis="")
CALM = prop(id="calm", claim="Nothing is raised.", basis="the interface")
SKIPPED = prop(silent("nothing to see"), id="skipped", claim="Speaks of nothing.")
OUTSIDE = prop(id="outside", claim="Needs more than is claimed.", needs=requires("softcap"))
FAULTY = prop(_faulty, id="faulty", claim="Cannot be checked.")
VACUOUS = prop(
    _bound_of_huge_values,
    id="vacuous",
    claim="Anything would pass.",
    prepare=lambda call: call_of(2).but(dtype=call.dtype),
)
UNDECIDED = prop(finding(judgement("output", "undecided", 1.0)), id="undecided", claim="No precision decides it.")


def parts(
    *subjects: Subject,
    properties: tuple[Property, ...] = (OUTPUT, CALM),
    checked: SelfCheckRecord = CHECKED,
    proofs: ProofRecord = PROOFS,
    fresh: Callable[[str, str, float], Subject] | None = None,
    reference: Subject | None = None,
) -> Parts:
    """Parts of a campaign that knows only these subjects and properties and starts no process."""
    known = {s.name: s for s in subjects}

    def load(spec: str, device: str) -> Subject:
        if device == "absent":
            raise MissingDevice("device 'absent' is not there")
        if spec not in known:
            raise UsageError(f"unknown subject {spec!r}: expected one of {', '.join(known)}")
        return known[spec]

    return replace(
        default_parts(),
        load=load,
        foreign=lambda spec: False,
        fresh=fresh or (lambda spec, device, timeout: load(spec, device)),
        properties=lambda: {p.id: p for p in properties},
        self_check=lambda profile, seed: checked,
        reference=lambda: NumpyReference() if reference is None else reference,
        proofs=lambda: proofs,
    )
