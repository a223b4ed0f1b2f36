"""Flags: causal masks that are said by a word and the two lengths."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attnspec.pyspec import visibility
from attnspec.pyspec.calls.encodings.base import Encoding, Request, Shape


@dataclass(frozen=True)
class CausalFlag:
    """The flag of torch's functional attention: true is the upper-left triangle, false no mask at all."""

    is_causal: bool


@dataclass(frozen=True)
class CausalBias:
    """torch's causal bias object by its arguments: variant "upper_left" or "lower_right", and the two lengths."""

    variant: str
    queries: int
    keys: int


def _flag(r: Request) -> CausalFlag:
    _, _, q, k = r.shape
    triangle = bool((r.stored == visibility.upper_left(q, k)).all())
    return CausalFlag(triangle or not r.visible.all())


def _read_flag(payload: CausalFlag, shape: Shape) -> np.ndarray:
    relation = visibility.upper_left if payload.is_causal else visibility.full
    return np.broadcast_to(relation(shape[2], shape[3]), shape)


def _lower_right(r: Request) -> CausalBias:
    return CausalBias("lower_right", r.shape[2], r.shape[3])


def _read_bias(payload: CausalBias, shape: Shape) -> np.ndarray:
    relation = {"upper_left": visibility.upper_left, "lower_right": visibility.lower_right}[payload.variant]
    return np.broadcast_to(relation(payload.queries, payload.keys), shape)


IS_CAUSAL_FLAG = Encoding(
    name="is_causal_flag",
    polarity="none: a flag",
    exact=True,
    expresses="the upper-left triangle, or everything visible",
    make=_flag,
    read=_read_flag,
)
CAUSAL_LOWER_RIGHT = Encoding(
    name="causal_lower_right",
    polarity="none: a bias object",
    exact=True,
    expresses="the lower-right triangle",
    make=_lower_right,
    read=_read_bias,
)
