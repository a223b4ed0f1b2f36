"""Which calls of other families are dot products in disguise, and may be handed to a dot-product kernel."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import isqrt

import numpy as np

from attnspec.pyspec.calls.call import AttentionCall
from attnspec.pyspec.calls.errors import FamilyError
from attnspec.pyspec.calls.formats import is_representable, round_to
from attnspec.pyspec.calls.score import Bilinear, Cosine, Dot
from attnspec.pyspec.lengths import lengths_of


@dataclass(frozen=True, eq=False)
class Reduction:
    """A dot-product call with the scores of another family's call.

    exact: no entry had to be rounded; rounded: how many had. A reduction that is not exact computes another call,
    whose error against the family's own is that of rounding its query (and key) once.
    """

    call: AttentionCall
    family: str
    exact: bool
    rounded: int


def reduce_to_dot(call: AttentionCall, *, rounding: str = "refuse") -> Reduction:
    """The dot-product call with the same scores: q' = q W for bilinear, unit vectors for cosine.

    The new tensors are computed exactly. Where an entry is not a value of the call's dtype, "refuse" raises a
    FamilyError that names it; "nearest" rounds it and says so in the result. The additive family is refused
    always: tanh of a sum of two terms is no dot product of anything of fixed width. The scale is carried over as a
    number, so that no default can be applied a second time. Lean: AttnProofs.bilinear_reduces_to_dot.
    """
    if rounding not in ("refuse", "nearest"):
        raise ValueError(f"rounding = {rounding!r}: expected 'refuse' or 'nearest'")
    family, plain = call.score, call.but(score=Dot())
    if isinstance(family, Dot):
        return Reduction(plain, "dot", True, 0)
    if isinstance(family, Bilinear):
        moved = {"query": _times_metric(call.query, family.metric)}
    elif isinstance(family, Cosine):
        moved = {name: _directions(name, getattr(call, name), family, rounding) for name in ("query", "key")}
    else:
        raise FamilyError(
            "family = 'additive' is no dot product: its scores need a kernel of their own "
            "(pairs of queries and keys through tanh); a product of matrices is another model"
        )
    fields, count = {}, 0
    for name, exact in moved.items():
        fields[name], lost = _as_floats(name, exact, call.dtype, family.name, rounding)
        count += lost
    changed = plain.but(**fields, scale=call.scale_value)
    return Reduction(changed, family.name, count == 0, count)


def _times_metric(query: np.ndarray, metric: np.ndarray) -> np.ndarray:
    """q W in exact arithmetic."""
    if _are_integers(query) and _are_integers(metric):
        product = np.matmul(np.abs(query), np.abs(metric)[None])
        if product.size == 0 or product.max() < 2.0**53:
            return np.matmul(query, metric[None])
    exact = np.vectorize(lambda x: Fraction(float(x)), otypes=[object])
    if query.size == 0 or metric.size == 0:
        return np.zeros(query.shape, dtype=object)
    return np.matmul(exact(query), np.broadcast_to(exact(metric)[None], (1, query.shape[1], *metric.shape[1:])))


def _are_integers(a: np.ndarray) -> bool:
    return bool((a == np.floor(a)).all())


def _directions(name: str, vectors: np.ndarray, family: Cosine, rounding: str) -> np.ndarray:
    """Each row over its length, exactly where the length is rational; else as a Fraction near it."""
    out = np.zeros(vectors.shape, dtype=object)
    kinds = lengths_of(vectors, family.epsilon)
    for row in np.ndindex(vectors.shape[:-1]):
        if kinds.zero[row]:
            continue
        entries = [Fraction(float(x)) for x in vectors[row]]
        length = Fraction(family.epsilon) if kinds.short[row] else _root(sum(e * e for e in entries))
        if length is None:
            if rounding == "refuse":
                raise FamilyError(
                    f"cosine: the length of {name}{list(row)} is irrational, so its direction is not exact in any "
                    "format: run a cosine kernel, or ask for rounding='nearest'"
                )
            length = _near_root(sum(e * e for e in entries))
        out[row] = np.array([e / length for e in entries], dtype=object)
    return out


def _root(x: Fraction | int) -> Fraction | None:
    """The square root of a positive rational where it is rational."""
    f = Fraction(x)
    top, bottom = isqrt(f.numerator), isqrt(f.denominator)
    return Fraction(top, bottom) if top * top == f.numerator and bottom * bottom == f.denominator else None


def _near_root(x: Fraction | int) -> Fraction:
    """A rational within a relative 2^-100 of the square root."""
    f = Fraction(x)
    shift = max(0, 240 - (f.numerator.bit_length() - f.denominator.bit_length()))
    shift += shift % 2
    return Fraction(isqrt((f.numerator << shift) // f.denominator), 1 << (shift // 2))


def _as_floats(name: str, exact: np.ndarray, dtype: str, family: str, rounding: str) -> tuple[np.ndarray, int]:
    if exact.dtype == np.float64:
        return _checked(name, exact, is_representable(dtype, exact), dtype, family, rounding)
    nearest = np.array([float(x) for x in exact.reshape(-1)], dtype=np.float64).reshape(exact.shape)
    kept = np.array(
        [Fraction(float(n)) == x for n, x in zip(nearest.reshape(-1), exact.reshape(-1), strict=True)], dtype=bool
    ).reshape(exact.shape)
    kept &= is_representable(dtype, nearest)
    return _checked(name, nearest, kept, dtype, family, rounding)


def _checked(
    name: str, nearest: np.ndarray, kept: np.ndarray, dtype: str, family: str, rounding: str
) -> tuple[np.ndarray, int]:
    if rounding == "refuse" and not kept.all():
        where = tuple(int(i) for i in np.argwhere(~kept)[0])
        raise FamilyError(
            f"{family}: the reduced {name}{list(where)} = {nearest[where]!r} is not exactly a value of {dtype}: "
            f"run a {family} kernel, widen the dtype, or ask for rounding='nearest'"
        )
    return round_to(dtype, nearest), int((~kept).sum())
