"""From a refuting call to a small one that is refuted in the same way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from attnspec.certify.campaign.budget import THOROUGH
from attnspec.certify.subject import Subject
from attnspec.certify.subjects.isolate import IsolatedSubject
from attnspec.certify.trials.engine import Checked, check
from attnspec.certify.trials.held import Held
from attnspec.certify.trials.outcome import Outcome
from attnspec.certify.trials.property import Property
from attnspec.pyspec import AttentionCall
from attnspec.pyspec.calls.fingerprint import fingerprint

# The count of tries decides, so that two runs end at the same call; the time only guards against slow subjects.
REDUCTION_SECONDS = 30.0
REDUCTION_CALL_SECONDS = 5.0
CRASH_REDUCTION_SECONDS = 20.0

Reduce = Callable[[AttentionCall, Callable[[AttentionCall], bool], int], AttentionCall]


@dataclass(frozen=True, eq=False)
class Reduction:
    """How a refuting call is made smaller.

    reduce: (call, fails, budget) -> a smaller call that fails. reference: a right subject, which must not fail, or
    None. budget: tries; seconds: the most that they may take. known: small calls that refute other claims: one bug
    breaks many, and where one of them serves here too, reduction starts from it.
    """

    prop: Property
    held: Held
    reduce: Reduce
    reference: Subject | None
    budget: int
    seconds: float = REDUCTION_SECONDS
    known: Sequence[AttentionCall] = ()


def minimise(how: Reduction, found: Checked) -> Checked:
    """The smallest refuted call found, checked. The call given counts as found.

    A candidate counts only when the same kind of failure is seen again, and named no more widely; when it is still a
    call that the property speaks of, wherever `prepare` can tell (it leaves its own results alone); and when the
    reference does not fail on it too: what refutes a right kernel is no bug of this one. A failure that costs a process
    each time is looked for in forks, and what they find is confirmed in a process of its own.
    """
    subject, kinds = how.held.subject, found.outcome.kinds
    costs_a_process = any(kind in ("died", "timeout") for kind, _ in kinds)
    if not (isinstance(subject, IsolatedSubject) and costs_a_process):
        return _reduced(how, found)
    patience = min(subject.timeout, REDUCTION_CALL_SECONDS)
    quick = IsolatedSubject(subject.spec, subject.device, timeout=patience, forks=True)
    try:
        seconds = min(how.seconds, CRASH_REDUCTION_SECONDS)
        smallest = _reduced(replace(how, held=how.held.sharing(quick), seconds=seconds), found)
    finally:
        quick.close()
    again = _checked(how.prop, how.held, smallest.call)
    return again if again is not None and _fails_alike(again.outcome, found.outcome) else found


def _reduced(how: Reduction, found: Checked) -> Checked:
    prop, held = how.prop, how.held
    deadline = time.monotonic() + how.seconds
    best = [found]
    stable = _is_fixed(prop, found.call)
    # Both ask the same oracle: it knows the exact values, whoever is judged.
    right = None if how.reference is None else held.sharing(how.reference, how.reference.ledger)

    def fails(candidate: AttentionCall) -> bool:
        if time.monotonic() > deadline or (stable and not _is_fixed(prop, candidate)):
            return False
        again = _checked(prop, held, candidate)
        if again is None or not _fails_alike(again.outcome, found.outcome):
            return False
        if right is not None and right.uncovered(candidate) is None:
            expected = _checked(prop, right, candidate)
            if expected is None or expected.outcome.refuted:
                return False
        best[0] = again
        return True

    try:
        start = next((c for c in _candidates(prop, found.call, how.known) if fails(c)), found.call)
        if start is not found.call and how.budget < THOROUGH:
            return best[0]
        smallest = how.reduce(start, fails, how.budget)
    except ValueError:
        # The reducer saw the call hold: it does not fail every time. The call as found is the evidence.
        return best[0]
    if smallest is best[0].call:
        return best[0]
    # The reducer answers with a call it has seen fail; its outcome is looked up again rather than guessed.
    again = _checked(prop, held, smallest)
    return again if again is not None and again.outcome.refuted else best[0]


def _fails_alike(again: Outcome, found: Outcome) -> bool:
    """Is the same kind of failure seen again, and does the result fit no other wrong models than before?"""
    named = not found.mistakes or (again.mistakes and set(again.mistakes) <= set(found.mistakes))
    return bool(again.kinds & found.kinds and named)


def _candidates(prop: Property, call: AttentionCall, known: Sequence[AttentionCall]) -> Iterator[AttentionCall]:
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
    held = Held(reference, reference.ledger)
    if held.uncovered(call) is not None:
        return False
    found = _checked(prop, held, call)
    return found is not None and found.outcome.refuted


def _checked(prop: Property, held: Held, call: AttentionCall) -> Checked | None:
    """The check, or None where it cannot be made on such a call."""
    try:
        return check(prop, call, held)
    except Exception:
        return None


def _is_fixed(prop: Property, call: AttentionCall) -> bool:
    """Does `prepare` leave the call as it is?"""
    try:
        prepared = prop.prepare(call)
    except Exception:
        return False
    return prepared is call or (prepared is not None and fingerprint(prepared) == fingerprint(call))
