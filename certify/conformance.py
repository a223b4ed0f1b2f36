"""The conformance suite for pytest: each property as one test, its calls drawn by Hypothesis."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase

from attnspec.certify.campaign.budget import DEFAULT_DTYPES, PROFILES, cases_for
from attnspec.certify.campaign.minimise import Reduction, minimise, refutes_reference
from attnspec.certify.campaign.parts import default_parts, features_of
from attnspec.certify.campaign.stored import snippet_of
from attnspec.certify.errors import UsageError
from attnspec.certify.evidence.counterexample import Refutation, make_counterexample
from attnspec.certify.evidence.report.text import refutation
from attnspec.certify.subject import Subject
from attnspec.certify.trials import Checked, Held, Property, registered
from attnspec.certify.trials import check as check_property
from attnspec.pyspec import AttentionCall, CallError, call_from_json, call_to_json
from attnspec.pyspec.calls.errors import did_you_mean
from attnspec.pyspec.calls.formats import FORMATS
from attnspec.strategies import PROFILES as SIZES
from attnspec.strategies import attention_calls, small, traits

_REDUCTION_TRIES = 1500


class Refuted(AssertionError):
    """A subject broke a property; the message is the whole report."""


@dataclass(frozen=True)
class ConformanceCase:
    """One property to which one subject is held at one dtype."""

    prop: Property
    subject: Subject
    spec: str
    device: str
    dtype: str
    profile: str
    examples: int

    @property
    def id(self) -> str:
        """The test's id."""
        return f"{self.prop.id}-{self.spec}-{self.dtype}"

    def run(self, kept: Path | None = None) -> None:
        """Draw calls and check them; Refuted with the whole report when one fails, a skip when none was tested.

        The draws are the same in every run. `kept` is a folder for the call that failed: the next run begins with it.
        """
        reason = self.prop.needs(self.subject.capabilities)
        if reason is not None:
            pytest.skip(f"not covered: {reason}")
        held = Held(self.subject, self.subject.ledger, self.device)
        file = None if kept is None else kept / (re.sub(r"[^\w.-]+", "_", self.id) + ".json")
        self._check_kept(held, file)
        sizes = SIZES[self.profile]
        calls = attention_calls(
            small(sizes) if self.prop.small else sizes, features_of(self.subject.capabilities, self.dtype)
        )
        tested: Counter[str] = Counter()
        failing: list[Checked] = []

        # Hypothesis keeps no examples of a test whose draws are fixed: the failing call itself is kept instead.
        @hypothesis.settings(
            max_examples=self.examples,
            deadline=None,
            database=None,
            derandomize=True,
            phases=(Phase.generate, Phase.target, Phase.shrink),
            # A call on which the property has nothing to say is filtered, and some are large: both are meant.
            suppress_health_check=(HealthCheck.filter_too_much, HealthCheck.too_slow, HealthCheck.data_too_large),
        )
        @hypothesis.given(calls)
        def check(drawn: AttentionCall) -> None:
            call = self.prop.prepare(drawn)
            if call is None:
                tested["skipped: not a call of this property"] += 1
                return
            found = check_property(self.prop, call, held)
            skip = found.outcome.skip
            tested[found.outcome.status if skip is None else f"skipped: {skip.text}"] += 1
            if skip is not None:
                return
            # The search goes on from calls that come near the bound, and from calls that are in many edge classes.
            hypothesis.target(float(len(traits(call))), label="edge classes")
            worst = found.outcome.worst
            if worst is not None and 0.0 < worst.worst <= 1.0:
                hypothesis.target(worst.worst, label="error ÷ bound")
            if found.outcome.refuted:
                failing[:] = [found]
                raise Refuted(self.prop.claim)

        try:
            check()
        except Refuted:
            raise Refuted(self._report(held, failing[0], file)) from None
        if not tested["held"]:
            pytest.skip(f"nothing was tested: {dict(tested)}")

    def _check_kept(self, held: Held, file: Path | None) -> None:
        """Check the call that failed in an earlier run; it is forgotten when it holds now."""
        if file is None or not file.exists():
            return
        try:
            call = call_from_json(file.read_bytes())
        except CallError as error:
            warnings.warn(f"{file} is left out and removed: {error}", stacklevel=2)
            file.unlink()
            return
        found = check_property(self.prop, call, held)
        if found.outcome.refuted:
            raise Refuted(self._report(held, found, file))
        file.unlink()

    def _report(self, held: Held, found: Checked, file: Path | None) -> str:
        parts = default_parts()
        reference = parts.reference()
        if refutes_reference(self.prop, reference, found.call):
            return f"the reference is refuted by {self.prop.id} as well: the check is wrong, not the subject"
        found = minimise(Reduction(self.prop, held, parts.reduce, reference, _REDUCTION_TRIES), found)
        assert found.trial is not None
        if file is not None:
            file.write_text(call_to_json(found.call), encoding="utf-8")
        refuted = Refutation(
            prop=self.prop,
            subject=self.spec,
            device=self.device,
            isolated=False,
            ledger=held.ledger_for(found.call.dtype),
            base=found.call,
            trial=found.trial,
            outcome=found.outcome,
            profile=self.profile,
            reduced=True,
        )
        snippet = snippet_of(self.subject, found.trial, found.outcome)
        return "\n" + refutation(make_counterexample(refuted, snippet, theorem_checked_here=False))


def cases(
    specs: Sequence[str], device: str, dtypes: Sequence[str] | None, profile: str, examples: int | None
) -> list[ConformanceCase]:
    """Every property for each subject and dtype, in registry order. Raises UsageError or MissingDevice."""
    if profile not in PROFILES:
        raise UsageError(f"profile {profile!r}: expected one of {', '.join(PROFILES)}")
    for dtype in dtypes or ():
        if dtype not in FORMATS:
            raise UsageError(f"dtype {dtype!r}{did_you_mean(dtype, FORMATS)}: expected one of {', '.join(FORMATS)}")
    parts = default_parts()
    found = []
    for spec in specs:
        subject = parts.load(spec, device)
        claimed = subject.capabilities.dtypes
        missing = [dtype for dtype in dtypes or () if dtype not in claimed]
        if missing:
            raise UsageError(f"{spec} does not claim dtype {missing[0]!r}: it claims {', '.join(claimed)}")
        for dtype in dtypes or [d for d in DEFAULT_DTYPES if d in claimed]:
            for prop in registered().values():
                count = cases_for(prop, profile, examples)
                found.append(ConformanceCase(prop, subject, spec, device, dtype, profile, count))
    return found


@pytest.mark.property
def test_property(conformance_case: ConformanceCase, attnspec_failing_examples: Path | None) -> None:
    """The subject keeps the property on every call drawn, those first that failed in an earlier run."""
    conformance_case.run(attnspec_failing_examples)
