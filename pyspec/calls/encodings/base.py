"""What an encoding is: a named adapter with a polarity, accepted only where it says the relation edge by edge."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attnspec.pyspec.calls.call import CallError
from attnspec.pyspec.calls.formats import get_format, is_representable
from attnspec.pyspec.calls.masks.compiler import Compiled
from attnspec.pyspec.calls.masks.handoff import Handoff

Shape = tuple[int, int, int, int]


class EncodingError(CallError):
    """An encoding cannot say what it was asked to. `encoding` names it; `edge` is the first (b, h, i, j) it loses."""

    def __init__(self, encoding: str, message: str, edge: tuple[int, int, int, int] | None = None) -> None:
        super().__init__(f"{encoding}: {message}")
        self.encoding = encoding
        self.edge = edge


@dataclass(frozen=True, eq=False)
class Request:
    """What an encoding must express: a visibility relation, a finite bias or None, a dtype, options.

    shape: [B, Hq, Q, K]. stored: the relation as it was given, four axes that broadcast to `shape`; so does bias.
    """

    stored: np.ndarray
    bias: np.ndarray | None
    dtype: str
    options: Mapping[str, Any]
    shape: Shape

    @property
    def visible(self) -> np.ndarray:
        """The relation [B, Hq, Q, K]."""
        return np.broadcast_to(self.stored, self.shape)


@dataclass(frozen=True)
class Encoding:
    """A named way to tell a kernel what is visible.

    polarity: what its truth value or number means. exact: whether hidden edges are absent from the softmax, or
    only unlikely. expresses: what it can say. carries_bias: whether a finite bias travels in the same object.
    make: the payload for a request, best effort; read: the relation that a payload says. `encode` compares them.
    """

    name: str
    polarity: str
    exact: bool
    expresses: str
    make: Callable[[Request], Any]
    read: Callable[[Any, Shape], np.ndarray]
    carries_bias: bool = False
    options: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Encoded:
    """A relation in an encoding: the payload a kernel takes, and enough to read it back."""

    encoding: Encoding
    payload: Any
    shape: Shape
    handoff: Handoff | None = None

    @property
    def exact(self) -> bool:
        """Are hidden edges absent, rather than unlikely?"""
        return self.encoding.exact

    def decode(self) -> np.ndarray:
        """The relation [B, Hq, Q, K] that the payload says."""
        return self.encoding.read(self.payload, self.shape)


@dataclass
class Registry:
    """Encodings by name, in order of registration."""

    by_name: dict[str, Encoding] = field(default_factory=dict)

    def add(self, *encodings: Encoding) -> None:
        """Register encodings; names are unique."""
        for encoding in encodings:
            if encoding.name in self.by_name:
                raise ValueError(f"encoding {encoding.name!r} is registered twice")
            self.by_name[encoding.name] = encoding


def request(
    encoding: Encoding,
    visible: np.ndarray | Compiled,
    bias: np.ndarray | None,
    dtype: str,
    options: Mapping[str, Any],
    shape: Shape | None = None,
) -> Request:
    """A checked request; EncodingError where the encoding has no place for what is asked."""
    relation = visible.relation if isinstance(visible, Compiled) else np.asarray(visible)
    if relation.ndim != 4 or relation.dtype != np.bool_:
        raise EncodingError(
            encoding.name,
            f"visible has dtype {relation.dtype} and shape {list(relation.shape)}: expected bool, [B, Hq, Q, K]",
        )
    b, h, q, k = relation.shape
    whole = (b, h, q, k) if shape is None else shape
    if not _broadcasts(relation, whole):
        raise EncodingError(
            encoding.name,
            f"visible has shape {list(relation.shape)}: expected four axes that broadcast to {list(whole)}",
        )
    unknown = sorted(set(options) - set(encoding.options))
    if unknown:
        raise EncodingError(
            encoding.name, f"unknown option {unknown[0]!r}: it takes {list(encoding.options) or 'none'}"
        )
    get_format(dtype)
    if bias is not None:
        bias = np.asarray(bias, dtype=np.float64)
        _check_bias(encoding, bias, whole, dtype)
    return Request(relation, bias, dtype, options, whole)


def _broadcasts(array: np.ndarray, shape: tuple[int, ...]) -> bool:
    return array.ndim == 4 and all(n in (1, m) for n, m in zip(array.shape, shape, strict=True))


def _check_bias(encoding: Encoding, bias: np.ndarray, shape: tuple[int, ...], dtype: str) -> None:
    if not encoding.carries_bias:
        raise EncodingError(encoding.name, "carries no bias; use 'additive', or add the bias to the scores before")
    if not _broadcasts(bias, shape):
        raise EncodingError(
            encoding.name, f"bias has shape {list(bias.shape)}: expected four axes that broadcast to {list(shape)}"
        )
    if not np.isfinite(bias).all():
        raise EncodingError(encoding.name, "bias is not finite: -inf hides an edge, so say it in `visible`")
    if not is_representable(dtype, bias).all():
        raise EncodingError(encoding.name, f"bias holds numbers that are no values of {dtype}; round them first")


def first_difference(wanted: np.ndarray, said: np.ndarray) -> tuple[int, int, int, int] | None:
    """The first edge (b, h, i, j) on which two relations differ, or None; `wanted` broadcasts to `said`."""
    different = wanted != said
    if not different.any():
        return None
    b, h, i, j = (int(n) for n in np.argwhere(different)[0])
    return (b, h, i, j)
