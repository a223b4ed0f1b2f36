"""The families as data (attnspec.pyspec.calls.score), and a call with scores of another family."""

from __future__ import annotations

from attnspec.pyspec.calls.call import AttentionCall
from attnspec.pyspec.calls.errors import FamilyError
from attnspec.pyspec.calls.score import FAMILIES, ZERO_NORM_POLICIES, Additive, Bilinear, Cosine, Dot, Family

__all__ = [
    "FAMILIES",
    "ZERO_NORM_POLICIES",
    "Additive",
    "Bilinear",
    "Cosine",
    "Dot",
    "Family",
    "FamilyError",
    "family_call",
    "plain_call",
]


def family_call(call: AttentionCall, family: Family) -> AttentionCall:
    """The same call with scores of that family."""
    return call.but(score=family)


def plain_call(call: AttentionCall) -> AttentionCall:
    """The call without its family: dot-product scores of the same tensors."""
    return call.but(score=Dot())
