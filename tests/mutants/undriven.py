"""Planted bugs that the campaign cannot refute yet, each with what it lacks. Nothing here counts as refuted."""

from __future__ import annotations

from .bug import Bug

# Features of calls, or of looking at them, that AttentionCall and Observation do not have.
NOT_DRIVEN: dict[str, str] = {
    "refusals": "no property asks for a refusal",
    "repeat_calls": "no property compares bits of two equal calls",
}

# Drawn and looked at, but too rarely or not widely enough: each of these must survive, or leave the list.
_LONG = "causal calls of more than 128 rows and keys, told by flag and not by mask, are one in some thousand"
_WITNESS = "no bound can see it, and the exactness witness counts storage bits for sums that are kept in float32"
GAPS: dict[tuple[str, str], str] = {
    ("late_rows_see_one_future_key", "float32"): _LONG,
    ("late_rows_lose_their_own_key", "float32"): _LONG,
    ("delta_rounded_to_storage", "bfloat16"): _WITNESS,
    ("probability_gradient_rounded_to_storage", "bfloat16"): _WITNESS,
    ("query_gradient_accumulated_in_storage", "bfloat16"): _WITNESS,
    ("key_gradient_accumulated_in_storage", "bfloat16"): _WITNESS,
}


def not_driven(bug: Bug) -> str | None:
    """Why the campaign never drives this bug, or None when it does."""
    return next((f"{f}: {why}" for f, why in NOT_DRIVEN.items() if f in bug.needs), None)
