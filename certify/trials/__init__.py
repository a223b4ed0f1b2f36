"""Trials: runs of a subject as data, what is expected of them, and the engine that runs and judges them."""

from attnspec.certify.trials.claim import Property, claim, registered
from attnspec.certify.trials.engine import Checked, check, run_trial
from attnspec.certify.trials.held import Held
from attnspec.certify.trials.outcome import Failure, Outcome
from attnspec.certify.trials.trial import Trial

__all__ = ["Checked", "Failure", "Held", "Outcome", "Property", "Trial", "check", "claim", "registered", "run_trial"]
