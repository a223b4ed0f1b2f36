"""What one run of a subject returned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np


@dataclass(frozen=True, eq=False)
class Observation:
    """What one run of a subject returned.

    tensors: float64 copies by the names of attnspec.pyspec.TENSORS (those the subject has); dtypes and devices: of the
    tensors as returned; kernel: the kernel seen to run, or "unobserved"; changed_inputs: inputs that the
    subject overwrote; error: what it raised, if it did; ending: how it failed then, "raised", "died" (its process
    ended) or "timeout" (no answer came).
    """

    tensors: Mapping[str, np.ndarray] = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)
    devices: Mapping[str, str] = field(default_factory=dict)
    kernel: str = "unobserved"
    changed_inputs: tuple[str, ...] = ()
    error: str | None = None
    ending: Literal["raised", "died", "timeout"] = "raised"
