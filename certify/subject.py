"""Subjects: what is certified. Anything that runs an `AttentionCall` and states its numerics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from attnspec.certify.claims import Capabilities, Skip
from attnspec.certify.conventions.program import Program
from attnspec.certify.observation import Observation
from attnspec.pyspec import AttentionCall, Ledger
from attnspec.pyspec.calls.features import FEATURES

__all__ = ["Capabilities", "KnownDivergence", "Observation", "Skip", "Subject", "uncovered"]


@runtime_checkable
class Subject(Protocol):
    """The contract of a subject. Implementations are cheap to make and import their library lazily."""

    @property
    def name(self) -> str:
        """Registered name, or the path it was loaded from."""
        ...

    @property
    def device(self) -> str:
        """Device the subject runs on: "cpu", "cuda", ..."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What it claims to support."""
        ...

    def identity(self) -> dict[str, str]:
        """What exactly this is: library versions, kernel, source digest, device name."""
        ...

    def ledger(self, dtype: str) -> Ledger:
        """The numerics it declares for that storage dtype."""
        ...

    def run(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Observation:
        """Run forward, and backward when the call has a grad_output.

        `raw` replaces query, key or value by arrays that need not be finite (poison tests), nor of the call's shapes,
        nor of its type (refusals): float64 arrays are stored in the call's dtype, others in their own.
        An exception of the kernel is returned in `Observation.error`, not raised.
        """
        ...

    # Optional: stages(call) -> dict[str, ndarray], named as in pyspec.oracle.trace.STAGES, for `certify explain`.

    def program(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Program:
        """That run as statements, through the subject's public interface only."""
        ...


@dataclass(frozen=True)
class KnownDivergence:
    """Calls on which a subject is known to be wrong: named, explained, left out of its claim, never passed.

    A subject lists them in an attribute `known_divergences`; `finding` names the entry in docs/FINDINGS.md.
    """

    name: str
    reason: str
    finding: str
    meets: Callable[[AttentionCall], bool]


def uncovered(subject: Subject, call: AttentionCall) -> Skip | None:
    """Why the subject does not claim to support this call, or None when it does."""
    known: tuple[KnownDivergence, ...] = getattr(subject, "known_divergences", ())
    for divergence in known:
        if divergence.meets(call):
            text = f"known divergence {divergence.name}: {divergence.reason} ({divergence.finding})"
            return Skip("known_divergence", divergence.name, text)
    capabilities = subject.capabilities
    for feature in FEATURES:
        if not feature.claim:
            continue
        claimed = getattr(capabilities, feature.claim)
        if feature.names is not None:
            words = [f"{feature.words} {name}" for name in feature.names(call) if name not in claimed]
        else:
            words = [feature.words] if not claimed and feature.of(call) else []
        if words:
            return Skip("not_claimed", feature.name, f"{words[0]} not claimed by {subject.name}")
    return None
