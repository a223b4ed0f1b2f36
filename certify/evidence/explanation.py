"""What `certify explain` is asked, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass

from attnspec.certify.trials.outcome import Outcome
from attnspec.certify.trials.trial import Trial
from attnspec.pyspec import Ledger
from attnspec.pyspec.oracle.stages import Leaving


@dataclass(frozen=True, eq=False)
class Asked:
    """What is to be explained: a run, the subject it is shown to, and the ledger (None: the subject's own).

    property: the id of the property that the run is a trial of, or None. call_timeout: seconds that the run may take in
    a process of its own (None: the usual time).
    """

    trial: Trial
    subject: str
    device: str
    isolated: bool | None
    ledger: Ledger | None
    about: str
    property: str | None = None
    call_timeout: float | None = None


@dataclass(frozen=True, eq=False)
class Explanation:
    """What came of it: the outcome of the run, its judgements in the order of computation, and the first stage that
    leaves. shows_stages: has the subject shown any.
    """

    asked: Asked
    ledger: Ledger
    outcome: Outcome
    shows_stages: bool = False
    leaving: Leaving | None = None

    @property
    def refuted(self) -> bool:
        """Did anything leave?"""
        return self.outcome.refuted or self.leaving is not None
