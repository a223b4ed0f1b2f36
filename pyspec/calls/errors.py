"""What is raised when a call breaks its contract, and the hint for a name that was mistyped."""

import difflib
from collections.abc import Iterable


class CallError(ValueError):
    """A call breaks its contract; the message names the field, the value, and what was expected."""


class FamilyError(CallError):
    """A score family's parameter, or a call of that family, breaks its contract; the message names field and mend."""


def did_you_mean(value: str, known: Iterable[str], limit: int = 3) -> str:
    """Text such as " (did you mean X or Y?)" for the closest known names, or the empty string."""
    close = difflib.get_close_matches(value, list(known), n=limit, cutoff=0.5)
    return f" (did you mean {' or '.join(close)}?)" if close else ""
