"""A small world for campaigns: subjects that are wrong on purpose, and properties that are quick to check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from attnspec.certify.properties.agree import agree
from attnspec.certify.properties.model import Bench, Outcome, Property

from attnspec.certify.campaign.parts import Parts, default_parts
from attnspec.certify.conventions.by_call import call_program
from attnspec.certify.conventions.program import Program
from attnspec.certify.errors import MissingDevice, UsageError
from attnspec.certify.evidence.certificate import ProofRecord, SelfCheckRecord
from attnspec.certify.properties.requires import requires
from attnspec.certify.subjects.numpy_reference import NumpyReference
from attnspec.certify.subjects.subject import Capabilities, Observation, Subject
from attnspec.pyspec import AttentionCall, Ledger
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

    def snippet(self, call: AttentionCall) -> str:
        return f"print({list(call.query.shape)})\n"


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


def check_output(call: AttentionCall, bench: Bench) -> Outcome:
    return agree(call, bench, tensors=("output",))


OUTPUT = Property(id="output", claim="The output is right & exact.", theorem="forward_over_duals", check=check_output)
CALM = Property(id="calm", claim="Nothing is raised.", theorem=None, basis="the interface", check=check_output)
SKIPPED = Property(
    id="skipped",
    claim="Speaks of nothing.",
    theorem=None,
    basis="a test",
    check=lambda call, bench: Outcome(skipped="nothing to see"),
)
OUTSIDE = Property(
    id="outside",
    claim="Needs more than is claimed.",
    theorem=None,
    basis="a test",
    check=check_output,
    needs=requires("softcap"),
)


def faulty_check(call: AttentionCall, bench: Bench) -> Outcome:
    raise ZeroDivisionError("in the check")


FAULTY = Property(id="faulty", claim="Cannot be checked.", theorem=None, basis="a test", check=faulty_check)


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
