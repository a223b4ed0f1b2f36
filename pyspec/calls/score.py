"""Score families as data: how a query and a key become one number. A call names its family in `call.score`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from attnspec.pyspec.calls.errors import FamilyError
from attnspec.pyspec.calls.formats import is_representable

if TYPE_CHECKING:
    from attnspec.pyspec.calls.call import AttentionCall

ZERO_NORM_POLICIES = ("reject", "zero", "clamp")


@dataclass(frozen=True, eq=False)
class Dot:
    """u = q · k. No parameters."""

    name: ClassVar[str] = "dot"

    def parameters(self) -> dict[str, np.ndarray]:
        """Learned arrays by name, leading axis: query heads, or one for all."""
        return {}


@dataclass(frozen=True, eq=False)
class Bilinear:
    """u = q W kᵀ. metric W [Hq or 1, Dq, Dk]."""

    metric: np.ndarray
    name: ClassVar[str] = "bilinear"

    def parameters(self) -> dict[str, np.ndarray]:
        """Learned arrays by name, leading axis: query heads, or one for all."""
        return {"metric": self.metric}


@dataclass(frozen=True, eq=False)
class Additive:
    """u = vᵀ tanh(W_q q + W_k k + b).

    query_map W_q [Hq or 1, Da, Dq], key_map W_k [Hq or 1, Da, Dk], offset b and vector v [Hq or 1, Da].
    """

    query_map: np.ndarray
    key_map: np.ndarray
    offset: np.ndarray
    vector: np.ndarray
    name: ClassVar[str] = "additive"

    def parameters(self) -> dict[str, np.ndarray]:
        """Learned arrays by name, leading axis: query heads, or one for all."""
        return {
            "query_map": self.query_map,
            "key_map": self.key_map,
            "offset": self.offset,
            "vector": self.vector,
        }


@dataclass(frozen=True, eq=False)
class Cosine:
    """u = q · k / (|q| |k|), within ±1.

    `zero_norm` says what a vector of length zero means: "reject" (the call is refused), "zero" (its direction is
    the zero vector, with zero gradient), or "clamp" (lengths below `epsilon` > 0 are replaced by it, in both
    passes). No parameters.
    """

    zero_norm: str = "reject"
    epsilon: float = 0.0
    name: ClassVar[str] = "cosine"

    def parameters(self) -> dict[str, np.ndarray]:
        """Learned arrays by name, leading axis: query heads, or one for all."""
        return {}

    def __post_init__(self) -> None:
        if self.zero_norm not in ZERO_NORM_POLICIES:
            raise FamilyError(f"cosine.zero_norm = {self.zero_norm!r}: expected one of {', '.join(ZERO_NORM_POLICIES)}")
        if (self.zero_norm == "clamp") != (self.epsilon > 0.0):
            raise FamilyError(
                f"cosine.epsilon = {self.epsilon!r} with zero_norm {self.zero_norm!r}: "
                "'clamp' needs an epsilon > 0, the other policies have none"
            )


Family = Dot | Bilinear | Additive | Cosine

FAMILIES = ("dot", "bilinear", "additive", "cosine")


def check_score(call: AttentionCall) -> None:
    """Raise FamilyError at the first field that breaks the contract of the call's score family.

    Parameters must be finite values of the call's dtype. Additive and cosine scores have no natural width, so
    their multiplier must be given (`scale.value`): key_width ** -0.5 is a fact about dot products.
    """
    family = call.score
    if isinstance(family, Dot):
        return
    if call.softcap is not None or call.sink is not None:
        name = "softcap" if call.softcap is not None else "sink"
        raise FamilyError(f"{name} of a {family.name} call: only dot products carry one; leave it out")
    if family.name in ("additive", "cosine") and call.scale.value is None:
        raise FamilyError(
            f"scale.value = None for the {family.name} family: key_width ** -0.5 belongs to dot products; "
            "give the multiplier (1.0 for none)"
        )
    for name, array in family.parameters().items():
        _check_parameter(call, name, array)
    if isinstance(family, Cosine) and family.zero_norm == "reject":
        _reject_zero_vectors(call)


def _check_parameter(call: AttentionCall, name: str, array: np.ndarray) -> None:
    family, width = call.score, call.axes.key_width
    hidden = family.vector.shape[-1] if isinstance(family, Additive) else 0
    tail = {"metric": (width, width), "query_map": (hidden, width), "key_map": (hidden, width)}.get(name, (hidden,))
    shapes = [(heads, *tail) for heads in dict.fromkeys((1, call.axes.query_heads))]
    label = f"{family.name}.{name}"
    if array.shape not in shapes:
        expected = " or ".join(str(list(s)) for s in shapes)
        raise FamilyError(f"{label} has shape {list(array.shape)}: expected {expected}")
    good = np.isfinite(array) & is_representable(call.dtype, array)
    if not good.all():
        where = tuple(int(i) for i in np.argwhere(~good)[0])
        raise FamilyError(f"{label}{list(where)} = {array[where]!r}: expected a finite value of {call.dtype}")


def _reject_zero_vectors(call: AttentionCall) -> None:
    for name in ("query", "key"):
        dead = ~(getattr(call, name) != 0).any(axis=-1)
        if dead.any():
            b, h, i = (int(n) for n in np.argwhere(dead)[0])
            raise FamilyError(
                f"{name}[{b}, {h}, {i}] has length zero, so it has no direction: "
                "choose cosine.zero_norm 'zero' or 'clamp', or leave the row out"
            )
