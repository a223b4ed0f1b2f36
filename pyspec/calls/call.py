"""`AttentionCall`: one attention call as immutable, validated data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attnspec.pyspec.calls.check import check
from attnspec.pyspec.calls.errors import CallError
from attnspec.pyspec.calls.features import arrays, changed
from attnspec.pyspec.calls.fields import (
    EMPTY_ROW_POLICIES,
    LAYOUTS,
    MASK_ENCODINGS,
    MASK_LAYOUTS,
    Axes,
    Backend,
    CallFields,
    Dropout,
    Layout,
    OwnDropout,
    Visibility,
)
from attnspec.pyspec.calls.formats import get_format, is_representable

__all__ = [
    "EMPTY_ROW_POLICIES",
    "LAYOUTS",
    "MASK_ENCODINGS",
    "MASK_LAYOUTS",
    "AttentionCall",
    "Axes",
    "Backend",
    "CallError",
    "Dropout",
    "Layout",
    "OwnDropout",
    "Visibility",
    "make_call",
    "representable",
]


@dataclass(frozen=True, eq=False)
class AttentionCall(CallFields):
    """One attention call: its fields, checked, with arrays that cannot be written to.

    Raises CallError naming the first broken field. Lean: AttnSpec.Inputs, AttnSpec.Params.
    """

    def __post_init__(self) -> None:
        check(self)
        copies = {part.path: _frozen(array) for part, array in arrays(self) if array.flags.writeable}
        for name, value in changed(self, copies).items():
            object.__setattr__(self, name, value)

    def but(self, **changes: Any) -> AttentionCall:
        """A copy with some fields replaced, validated again."""
        return replace(self, **changes)

    def with_parts(self, changes: Mapping[str, Any]) -> AttentionCall:
        """A copy with the parts at these paths of the feature table replaced, such as "dropout.multiplier"."""
        return self.but(**changed(self, changes))


def _frozen(array: np.ndarray) -> np.ndarray:
    """A read-only copy, so that the caller's array stays writeable."""
    copy = np.array(array, order="C")
    copy.flags.writeable = False
    return copy


def make_call(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    *,
    dtype: str = "float32",
    visible: np.ndarray | None = None,
    head_map: tuple[int, ...] | None = None,
    **fields: Any,
) -> AttentionCall:
    """A call from plain arrays: `visible` defaults to everything, `head_map` to equal groups.

    Values are taken as they are: round them to `dtype` first (`attnspec.pyspec.calls.formats.round_to`).
    """
    from attnspec.pyspec.heads import grouped

    get_format(dtype)
    query, key, value = (np.array(x, dtype=np.float64) for x in (query, key, value))
    if query.ndim != 4 or key.ndim != 4:
        raise CallError(f"query has shape {list(query.shape)}: expected four axes [batch, heads, length, width]")
    mask = np.ones((1, 1, 1, 1), dtype=bool) if visible is None else np.array(visible)
    return AttentionCall(
        query=query,
        key=key,
        value=value,
        dtype=dtype,
        visibility=Visibility(mask),
        head_map=grouped(query.shape[1], key.shape[1]) if head_map is None else tuple(head_map),
        **fields,
    )


def representable(call: AttentionCall) -> bool:
    """Is every value of the call a value of its dtype?"""
    return all(bool(is_representable(call.dtype, array).all()) for _, array in arrays(call, "numbers"))
