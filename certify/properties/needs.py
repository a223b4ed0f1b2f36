"""Reasons why a subject cannot be held to a property, from what it claims."""

from __future__ import annotations

from attnspec.certify.subjects.subject import Capabilities


def gradients(c: Capabilities) -> str | None:
    """Needs gradients."""
    return None if c.gradients else "gradients not claimed"


def lse(c: Capabilities) -> str | None:
    """Needs a returned LSE."""
    return None if c.returns_lse else "LSE not returned"


def bias(c: Capabilities) -> str | None:
    """Needs an additive bias."""
    return None if c.bias and "additive" in c.encodings else "bias not claimed"


def bias_gradient(c: Capabilities) -> str | None:
    """Needs the gradient of an additive bias."""
    return bias(c) or gradients(c) or (None if c.bias_gradient else "bias gradient not claimed")


def masks(c: Capabilities) -> str | None:
    """Needs explicit masks."""
    return None if {"bool", "additive"} & set(c.encodings) else "explicit masks not claimed"


def causal_flag(c: Capabilities) -> str | None:
    """Needs the is_causal flag."""
    return None if "causal_flag" in c.encodings else "causal flag not claimed"


def grouped_heads(c: Capabilities) -> str | None:
    """Needs grouped heads."""
    return None if c.grouped_heads else "grouped heads not claimed"


def empty_rows(c: Capabilities) -> str | None:
    """Needs rows without a visible key."""
    return masks(c) or (None if c.empty_rows else "empty rows not claimed")


def dropout(c: Capabilities) -> str | None:
    """Needs a way to pass a realised dropout multiplier."""
    return None if c.dropout_multiplier else "a realised dropout multiplier cannot be passed"


def any_scale(c: Capabilities) -> str | None:
    """Needs a scale argument."""
    return None if c.any_scale else "a scale other than the default not claimed"


def zero_sizes(c: Capabilities) -> str | None:
    """Needs zero lengths."""
    return None if c.zero_sizes else "zero sizes not claimed"


def deterministic(c: Capabilities) -> str | None:
    """Needs the same bits from the same call."""
    return None if c.deterministic else "the same bits again not claimed"


def refusals(c: Capabilities) -> str | None:
    """Needs exceptions for calls without meaning."""
    return None if c.refuses_meaningless else "refusal of calls without meaning not claimed"


def poison(c: Capabilities) -> str | None:
    """Needs isolation of NaN and infinity in hidden keys and values."""
    return masks(c) or (None if c.isolates_poison else "isolation of NaN in hidden keys not claimed")


def softcap(c: Capabilities) -> str | None:
    """Needs a softcap."""
    return None if c.softcap else "softcap not claimed"


def sink(c: Capabilities) -> str | None:
    """Needs an attention sink."""
    return None if c.sink else "attention sink not claimed"
