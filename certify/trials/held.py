"""A subject and the ledger that it is held to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from attnspec.certify.claims import Capabilities, Skip
from attnspec.certify.observation import Observation
from attnspec.certify.subject import Subject, uncovered
from attnspec.pyspec import AttentionCall, Ledger, Oracle, bounds

# Oracles and bounds of so many calls are kept: the trials of a case share theirs.
_KEPT = 8


@dataclass
class Held:
    """A subject, on a device, under a ledger for each dtype. Exact values and bounds of the last calls are kept."""

    subject: Subject
    ledger_for: Callable[[str], Ledger]
    device: str = "cpu"
    _oracles: dict[int, Oracle] = field(default_factory=dict)
    _bounds: dict[tuple[int, float], tuple[AttentionCall, Mapping[str, np.ndarray]]] = field(default_factory=dict)

    @property
    def claims(self) -> Capabilities:
        """What the subject claims."""
        return self.subject.capabilities

    def oracle(self, call: AttentionCall) -> Oracle:
        """The exact values of a call."""
        kept = self._oracles.get(id(call))
        if kept is not None and kept.call is call:
            return kept
        if len(self._oracles) >= _KEPT:
            self._oracles.clear()
        self._oracles[id(call)] = oracle = Oracle(call)
        return oracle

    def bounds(self, call: AttentionCall, tanh_error: float = 0.0) -> Mapping[str, np.ndarray]:
        """Allowed error of every tensor under the ledger in force, its tanh_error raised by that much."""
        kept = self._bounds.get((id(call), tanh_error))
        if kept is not None and kept[0] is call:
            return kept[1]
        if len(self._bounds) >= _KEPT:
            self._bounds.clear()
        ledger = self.ledger_for(call.dtype)
        found = bounds(call, replace(ledger, tanh_error=ledger.tanh_error + tanh_error) if tanh_error else ledger)
        self._bounds[id(call), tanh_error] = (call, found)
        return found

    def sharing(self, subject: Subject, ledger_for: Callable[[str], Ledger] | None = None) -> Held:
        """Another subject, held to this one's ledger or its own, that asks the same oracles."""
        return Held(subject, ledger_for or self.ledger_for, self.device, self._oracles)

    def run(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Observation:
        """Run the subject."""
        return self.subject.run(call, raw)

    def uncovered(self, call: AttentionCall) -> Skip | None:
        """Why the subject does not claim this call, or None when it does."""
        return uncovered(self.subject, call)
