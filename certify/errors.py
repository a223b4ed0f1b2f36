"""Exit codes, and the errors that end a command with one clear line instead of a traceback."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum


class ExitCode(IntEnum):
    """What `certify` tells the shell."""

    CERTIFIED = 0
    REFUTED = 1
    USAGE = 2
    OWN_FAULT = 3
    INCOMPLETE = 4
    NOTHING_SELECTED = 5
    INTERRUPTED = 130


# From least to most telling: what a run over several subjects returns is the last of these that occurred.
_SEVERITY = (
    ExitCode.CERTIFIED,
    ExitCode.NOTHING_SELECTED,
    ExitCode.INCOMPLETE,
    ExitCode.REFUTED,
    ExitCode.USAGE,
    ExitCode.OWN_FAULT,
    ExitCode.INTERRUPTED,
)


def worst_exit(codes: Iterable[int]) -> ExitCode:
    """The most severe of several exit codes; NOTHING_SELECTED when there are none."""
    return max((ExitCode(c) for c in codes), key=_SEVERITY.index, default=ExitCode.NOTHING_SELECTED)


class CertifyError(Exception):
    """Ends the command: `str()` is the one line that is printed, `exit_code` what the shell sees."""

    exit_code: ExitCode = ExitCode.OWN_FAULT


class UsageError(CertifyError):
    """The request is wrong: the line names the value, what was expected, and the mend."""

    exit_code = ExitCode.USAGE


class MissingDevice(CertifyError):
    """The subject claims the device, but this machine has none (or the library was built without it)."""

    exit_code = ExitCode.INCOMPLETE


class NothingSelected(CertifyError):
    """The options leave nothing to run."""

    exit_code = ExitCode.NOTHING_SELECTED


class OwnFault(CertifyError):
    """This package is at fault, not the subject: a verdict would mean nothing."""

    exit_code = ExitCode.OWN_FAULT
