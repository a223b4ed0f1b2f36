"""A foreign function whose `dropout_p` is to be certified as well: it draws its own masks from torch's generator."""

from __future__ import annotations

from dataclasses import dataclass, replace

from attnspec.certify.claims import Capabilities
from attnspec.certify.subjects.functional import FunctionSubject


@dataclass(frozen=True)
class SamplingFunction(FunctionSubject):
    """`fn(query, key, value, ..., dropout_p=p)`, held to `dropout-own-mask` besides what a function is held to.

    The function must draw from torch's default generator of its device, and take `dropout_p`.
    """

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, samples_dropout=True)
