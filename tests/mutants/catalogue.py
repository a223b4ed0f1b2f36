"""Every planted bug of the zoo kernel."""

from __future__ import annotations

from collections import Counter

from .bug import Bug
from .catalogue_backward import BACKWARD
from .catalogue_forward import FORWARD
from .catalogue_visibility import VISIBILITY

BUGS: tuple[Bug, ...] = VISIBILITY + FORWARD + BACKWARD
BY_NAME: dict[str, Bug] = {b.name: b for b in BUGS}


def live() -> tuple[Bug, ...]:
    """The bugs that change a bit on some call."""
    return tuple(b for b in BUGS if b.equivalent is None)


def equivalents() -> tuple[Bug, ...]:
    """The listed switches that can change no bit, each with its reason."""
    return tuple(b for b in BUGS if b.equivalent is not None)


def count_by_kind() -> dict[str, int]:
    """How many live bugs there are of each kind, most first."""
    return dict(Counter(b.kind for b in live()).most_common())
