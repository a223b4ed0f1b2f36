"""Trials: runs of a subject as data, what is expected of them, and the engine that runs and judges them."""

from attnspec.certify.trials.engine import Checked, check, run_trial
from attnspec.certify.trials.held import Held
from attnspec.certify.trials.outcome import Failure, Outcome
from attnspec.certify.trials.property import Property, claim, registered
from attnspec.certify.trials.record import TrialError, trial_from_data, trial_to_data
from attnspec.certify.trials.trial import Trial, recorded

__all__ = [
    "Checked",
    "Failure",
    "Held",
    "Outcome",
    "Property",
    "Trial",
    "TrialError",
    "check",
    "claim",
    "recorded",
    "registered",
    "run_trial",
    "trial_from_data",
    "trial_to_data",
]
