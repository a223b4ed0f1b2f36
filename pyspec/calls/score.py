"""Score families as data: how a query and a key become one number. A call names its family in `call.score`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np

from attnspec.pyspec.calls.errors import FamilyError

ZERO_NORM_POLICIES = ("reject", "zero", "clamp")


@dataclass(frozen=True, eq=False)
class _Family:
    """A family; its fields that are arrays are its learned parameters."""

    name: ClassVar[str]
    # Dot products alone have a natural multiplier, key_width ** -0.5, and are capped and joined by a sink.
    has_default_scale: ClassVar[bool] = False

    def parameters(self) -> dict[str, np.ndarray]:
        """Learned arrays by name, leading axis: query heads, or one for all."""
        given = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: array for name, array in given.items() if isinstance(array, np.ndarray)}


@dataclass(frozen=True, eq=False)
class Dot(_Family):
    """u = q · k. No parameters."""

    name: ClassVar[str] = "dot"
    has_default_scale: ClassVar[bool] = True


@dataclass(frozen=True, eq=False)
class Bilinear(_Family):
    """u = q W kᵀ. metric W [Hq or 1, Dq, Dk]."""

    metric: np.ndarray
    name: ClassVar[str] = "bilinear"
    has_default_scale: ClassVar[bool] = True


@dataclass(frozen=True, eq=False)
class Additive(_Family):
    """u = vᵀ tanh(W_q q + W_k k + b).

    query_map W_q [Hq or 1, Da, Dq], key_map W_k [Hq or 1, Da, Dk], offset b and vector v [Hq or 1, Da].
    """

    query_map: np.ndarray
    key_map: np.ndarray
    offset: np.ndarray
    vector: np.ndarray
    name: ClassVar[str] = "additive"


@dataclass(frozen=True, eq=False)
class Cosine(_Family):
    """u = q · k / (|q| |k|), within ±1.

    `zero_norm` says what a vector of length zero means: "reject" (the call is refused), "zero" (its direction is
    the zero vector, with zero gradient), or "clamp" (lengths below `epsilon` > 0 are replaced by it, in both
    passes). No parameters.
    """

    zero_norm: str = "reject"
    epsilon: float = 0.0
    name: ClassVar[str] = "cosine"

    def __post_init__(self) -> None:
        if self.zero_norm not in ZERO_NORM_POLICIES:
            raise FamilyError(f"cosine.zero_norm = {self.zero_norm!r}: expected one of {', '.join(ZERO_NORM_POLICIES)}")
        if (self.zero_norm == "clamp") != (self.epsilon > 0.0):
            raise FamilyError(
                f"cosine.epsilon = {self.epsilon!r} with zero_norm {self.zero_norm!r}: "
                "'clamp' needs an epsilon > 0, the other policies have none"
            )


Family = Dot | Bilinear | Additive | Cosine

FAMILY_KINDS: dict[str, type[Family]] = {kind.name: kind for kind in (Dot, Bilinear, Additive, Cosine)}
FAMILIES = tuple(FAMILY_KINDS)
