"""Planted bugs that the campaign cannot refute yet, each with what it lacks. Nothing here counts as refuted."""

from __future__ import annotations

from .bug import Bug

# Features of calls, or of looking at them, that AttentionCall and Observation do not have.
NOT_DRIVEN: dict[str, str] = {
    "refusals": "no property asks for a refusal",
    "repeat_calls": "no property compares bits of two equal calls",
}

# Seen by so few of the profile's cases that the stream of draws decides: about one exactness witness in forty has
# sums of more bits than the storage has, whose total is a number of the storage again. No bound can see these two.
_WITNESS = "one exactness witness in forty, or none, has partial sums that the storage cannot hold"
GAPS: dict[tuple[str, str], str] = {
    ("query_gradient_accumulated_in_storage", "bfloat16"): _WITNESS,
    ("key_gradient_accumulated_in_storage", "bfloat16"): _WITNESS,
}


def not_driven(bug: Bug) -> str | None:
    """Why the campaign never drives this bug, or None when it does."""
    return next((f"{f}: {why}" for f, why in NOT_DRIVEN.items() if f in bug.needs), None)
