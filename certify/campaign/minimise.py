"""From a refuting call to a small one that is refuted in the same way."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator

from attnspec.certify.campaign.budget import THOROUGH
from attnspec.certify.properties.model import Bench, Outcome, Property
from attnspec.certify.subjects.isolate import IsolatedSubject
from attnspec.certify.subjects.subject import Subject
from attnspec.pyspec import AttentionCall
from attnspec.pyspec.calls.fingerprint import fingerprint

# The count of tries decides, so that two runs end at the same call; the time only guards against slow subjects.
REDUCTION_SECONDS = 30.0
REDUCTION_CALL_SECONDS = 5.0
CRASH_REDUCTION_SECONDS = 20.0
_CRASH = re.compile(r"the process (died|exited)|no answer in")

Reduce = Callable[[AttentionCall, Callable[[AttentionCall], bool], int], AttentionCall]


def kind(outcome: Outcome) -> frozenset[str]:
    """What is wrong, without numbers: the tensors out of bounds, or the words of the complaint."""
    if outcome.broken is not None:
        return frozenset({"broken: " + re.sub(r"[-+]?\d[\d.e+-]*|\[[^]]*\]", "#", outcome.broken)[:60]})
    return frozenset(j.tensor for j in outcome.judgements if j.outside)


def minimise(
    prop: Property,
    bench: Bench,
    reduce: Reduce,
    call: AttentionCall,
    outcome: Outcome,
    reference: Subject | None,
    budget: int,
    seconds: float = REDUCTION_SECONDS,
    known: Iterable[AttentionCall] = (),
) -> tuple[AttentionCall, Outcome]:
    """The smallest call found within `budget` tries, and its outcome. The call given counts as found.

    A candidate counts only when the same kind of failure is seen again; when it is still a call that the property
    speaks of, wherever `prepare` can tell (it leaves its own results alone); and when the reference does not fail
    on it too: what refutes a right kernel is no bug of this one.

    `known` are small calls that refute other claims. One bug breaks many claims: where one of them serves here too,
    reduction starts from it. A failure that costs a process each time is looked for in forks, and what they find
    is confirmed in a process of its own.
    """
    subject = bench.subject
    if not (isinstance(subject, IsolatedSubject) and outcome.broken is not None and _CRASH.search(outcome.broken)):
        return _reduced(prop, bench, reduce, call, outcome, reference, budget, seconds, known)
    patience = min(subject.timeout, REDUCTION_CALL_SECONDS)
    seconds = min(seconds, CRASH_REDUCTION_SECONDS)
    quick = IsolatedSubject(subject.spec, subject.device, timeout=patience, forks=True)
    try:
        trial = Bench(quick, bench.ledger_for, bench.device)
        smallest, _ = _reduced(prop, trial, reduce, call, outcome, reference, budget, seconds, known)
    finally:
        quick.close()
    again = _checked(prop, bench, smallest)
    confirmed = again is not None and again.refuted and kind(again) & kind(outcome)
    return (smallest, again) if again is not None and confirmed else (call, outcome)


def _reduced(
    prop: Property,
    bench: Bench,
    reduce: Reduce,
    call: AttentionCall,
    outcome: Outcome,
    reference: Subject | None,
    budget: int,
    seconds: float,
    known: Iterable[AttentionCall],
) -> tuple[AttentionCall, Outcome]:
    wanted = kind(outcome)
    deadline = time.monotonic() + seconds
    best = [(call, outcome)]
    stable = _is_fixed(prop, call)
    # Both benches ask the same oracle: it knows the exact values, whoever is judged.
    right = None if reference is None else Bench(reference, reference.ledger, _oracles=bench._oracles)

    def fails(candidate: AttentionCall) -> bool:
        if time.monotonic() > deadline or bench.uncovered(candidate) is not None:
            return False
        if stable and not _is_fixed(prop, candidate):
            return False
        found = _checked(prop, bench, candidate)
        if found is None or not found.refuted or not (kind(found) & wanted):
            return False
        if right is not None and right.uncovered(candidate) is None:
            expected = _checked(prop, right, candidate)
            if expected is None or expected.refuted:
                return False
        best[0] = (candidate, found)
        return True

    try:
        start = next((c for c in _candidates(prop, call, known) if fails(c)), call)
        if start is not call and budget < THOROUGH:
            return best[0]
        smallest = reduce(start, fails, budget)
    except ValueError:
        # The reducer saw the call hold: it does not fail every time. The call as found is the evidence.
        return best[0]
    if smallest is best[0][0]:
        return best[0]
    # The reducer answers with a call it has seen fail; its outcome is looked up again rather than guessed.
    again = _checked(prop, bench, smallest)
    return (smallest, again) if again is not None and again.refuted else best[0]


def _candidates(prop: Property, call: AttentionCall, known: Iterable[AttentionCall]) -> Iterator[AttentionCall]:
    """The known calls, smallest first, at this call's dtype and in the form that the property speaks of."""

    def size(other: AttentionCall) -> int:
        return other.query.size + other.key.size + other.value.size

    for other in sorted(known, key=size):
        if size(other) >= size(call):
            return
        try:
            prepared = prop.prepare(other.but(dtype=call.dtype))
        except Exception:
            continue
        if prepared is not None:
            yield prepared


def refutes_reference(prop: Property, reference: Subject | None, call: AttentionCall) -> bool:
    """Is the right kernel refuted on that call as well? Then the check is wrong, not the subject."""
    if reference is None or prop.needs(reference.capabilities) is not None:
        return False
    bench = Bench(reference, reference.ledger)
    if bench.uncovered(call) is not None:
        return False
    found = _checked(prop, bench, call)
    return found is not None and found.refuted


def _checked(prop: Property, bench: Bench, call: AttentionCall) -> Outcome | None:
    """The outcome, or None where the check itself cannot be made on such a call."""
    try:
        return prop.check(call, bench)
    except Exception:
        return None


def _is_fixed(prop: Property, call: AttentionCall) -> bool:
    """Does `prepare` leave the call as it is?"""
    try:
        prepared = prop.prepare(call)
    except Exception:
        return False
    return prepared is call or (prepared is not None and fingerprint(prepared) == fingerprint(call))
