"""Planted bugs that the campaign cannot refute yet, each with what it lacks. Nothing here counts as refuted."""

from __future__ import annotations

from .bug import Bug

# Features of calls, or of looking at them, that AttentionCall and Observation do not have.
NOT_DRIVEN: dict[str, str] = {
    "softcap": "no call carries a softcap",
    "refusals": "no property asks for a refusal",
    "repeat_calls": "no property compares bits of two equal calls",
}

# Drawn and looked at, but too rarely or not widely enough: each of these must survive, or leave the list.
GAPS: dict[tuple[str, str], str] = {}


def not_driven(bug: Bug) -> str | None:
    """Why the campaign never drives this bug, or None when it does."""
    return next((f"{f}: {why}" for f, why in NOT_DRIVEN.items() if f in bug.needs), None)
