"""What the families need beyond the spec's algebra: tanh, directions, and pairs of a query and a key.

Each operation works on the arrays of any ArrayDomain and, with a derived error, on `Bounded` matrices. Rules of
the errors: |tanh x - tanh y| ≤ |x - y|, and an evaluation of tanh is charged like one of exp (`exp_error` units
in the last place); a length is a sum of D squares (relative error D·u, halved by the root) and a few elementwise
roundings, which the division that follows carries on.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from attnspec.pyspec.calls.formats import Format
from attnspec.pyspec.domain import ArrayDomain, Domain
from attnspec.pyspec.domains.ball import BallDomain
from attnspec.pyspec.domains.big import BigDomain
from attnspec.pyspec.domains.float64 import Float64Domain
from attnspec.pyspec.domains.symbolic import SymbolicDomain
from attnspec.pyspec.dual import Dual, DualDomain
from attnspec.pyspec.families.kinds import Cosine, FamilyError
from attnspec.pyspec.oracle.bound import BoundDomain
from attnspec.pyspec.oracle.bounded import Bounded

# Elementwise roundings between a vector and its direction, whichever way a kernel goes: squares, their sum, the
# root, a clamp, a reciprocal, a product.
_DIRECTION_ROUNDINGS = 6
# The same on the way back: division by the length twice, two products, the sum, and the direction's own.
_DIRECTION_GRADIENT_ROUNDINGS = 10

ORDINARY, DEAD, SHORT = 0, 1, 2


def lengths(vectors: np.ndarray, family: Cosine) -> np.ndarray:
    """Kind of each vector's length, one column: ORDINARY, DEAD (zero, policy "zero"), SHORT (below epsilon).

    Decided in exact arithmetic, so every domain takes the same branch.
    """
    kinds = np.zeros((*vectors.shape[:-1], 1), dtype=np.int8)
    kinds[~(vectors != 0).any(axis=-1)] = DEAD
    if family.zero_norm == "clamp":
        limit = Fraction(family.epsilon) ** 2
        for row in np.ndindex(vectors.shape[:-1]):
            short = sum((Fraction(float(x)) ** 2 for x in vectors[row]), Fraction(0)) < limit
            kinds[row] = SHORT if short else ORDINARY
    return kinds


def pair(dom: Domain[Any], query_term: Any, key_term: Any) -> Any:
    """Sum of every query's and every key's term: [.., Q, A] and [.., K, A] to [.., Q, K, A]."""
    return dom.add("dot", widen(query_term, -2), widen(key_term, -3))


def widen(a: Any, axis: int) -> Any:
    """One more axis of length one."""
    if isinstance(a, Bounded):
        return Bounded(np.expand_dims(a.value, axis), np.expand_dims(a.bound, axis))
    return np.expand_dims(a, axis)


def narrow(a: Any, axis: int) -> Any:
    """The axis of length one left out."""
    if isinstance(a, Bounded):
        return Bounded(np.squeeze(a.value, axis), np.squeeze(a.bound, axis))
    return np.squeeze(a, axis)


def reshape(a: Any, shape: tuple[int, ...]) -> Any:
    """The matrix in another shape, row-major."""
    if isinstance(a, Bounded):
        return Bounded(a.value.reshape(shape), a.bound.reshape(shape))
    return a.reshape(shape)


def ones(dom: Domain[Any], shape: tuple[int, ...]) -> Any:
    """A matrix of ones."""
    return dom.lift(np.ones(shape))


def shape_of(a: Any) -> tuple[int, ...]:
    """Shape of a domain's matrix."""
    return a.value.shape if isinstance(a, Bounded) else a.shape


def tanh(dom: Domain[Any], a: Any) -> Any:
    """tanh of each entry; (e²ˣ - 1) / (e²ˣ + 1) where a domain has no tanh of its own."""
    if isinstance(dom, BoundDomain):
        unit, tiny = dom.unit * dom.ledger.exp_error, dom.tiny
        value = np.tanh(a.value)
        with np.errstate(all="ignore"):
            error = np.minimum(a.bound, 2.0) + unit * (np.abs(value) + np.minimum(a.bound, 2.0)) + tiny
        error = np.where(np.isinf(a.bound), np.inf, error)
        return _stored(dom, "dot", value, error)
    if isinstance(dom, Float64Domain):
        return np.tanh(a)
    assert isinstance(dom, ArrayDomain)
    return dom.map(lambda x: _tanh(dom, x), a)


def _tanh(dom: ArrayDomain, x: Any) -> Any:
    if isinstance(dom, BallDomain):
        return x.tanh()
    if isinstance(dom, BigDomain):
        return dom.context.tanh(x)
    e = dom.exp(x * dom.number(2.0))
    return (e - dom.number(1.0)) / (e + dom.number(1.0))


def tanh_slope(dom: Domain[Any], t: Any) -> Any:
    """1 - t² for t = tanh x: the derivative there."""
    square = dom.hadamard("scaled_grad", t, t)
    if isinstance(dom, BoundDomain):
        with np.errstate(all="ignore"):
            value = 1.0 - square.value
            error = square.bound + dom.unit * (np.abs(value) + square.bound) + dom.tiny
        return _stored(dom, "scaled_grad", value, error)
    assert isinstance(dom, ArrayDomain)
    return dom.number(1.0) - square


def _stored(dom: BoundDomain, stage: str, value: np.ndarray, error: np.ndarray) -> Bounded:
    """The value as the ledger keeps it after that stage."""
    if stage not in dom.ledger.stores:
        return Bounded(value, error)
    fmt = dom.ledger.storage_format
    size = np.abs(value) + error
    with np.errstate(all="ignore"):
        error = error + fmt.unit_roundoff * size + fmt.tiny
    return Bounded(value, np.where(np.isnan(error) | (size >= fmt.largest), np.inf, error))


def _format(dom: BoundDomain, stage: str) -> Format:
    """The format in which a ledger leaves the result of that stage."""
    return dom.ledger.storage_format if stage in dom.ledger.stores else dom.ledger.compute_format


def square_root(dom: ArrayDomain, x: Any) -> Any:
    """Square root of one number; a FamilyError where the domain has none."""
    if isinstance(dom, BallDomain):
        return x.sqrt()
    if isinstance(dom, BigDomain):
        return dom.context.sqrt(x)
    if isinstance(dom, SymbolicDomain):
        import sympy

        return sympy.sqrt(x)
    if isinstance(dom, DualDomain):
        root = square_root(dom.base, x.re)
        return Dual(root, x.eps / (root + root))
    raise FamilyError(f"the cosine family needs square roots, which the {dom.name} domain has not")


def direction(dom: Domain[Any], a: Any, kinds: np.ndarray, family: Cosine) -> tuple[Any, Any]:
    """Each row divided by its length, and one over the length (zero for a DEAD row)."""
    if isinstance(dom, BoundDomain):
        return _bounded_direction(dom, a, kinds, family)
    assert isinstance(dom, ArrayDomain)
    squares = dom.sum(a * a, -1)
    if isinstance(dom, Float64Domain):
        length = np.where(kinds == SHORT, family.epsilon, np.where(kinds == DEAD, 1.0, np.sqrt(squares)))
        return a / length, np.where(kinds == DEAD, 0.0, 1.0 / length)
    inverse = squares.copy()
    for i in np.ndindex(squares.shape):
        if kinds[i] == DEAD:
            inverse[i] = dom.number(0.0)
        elif kinds[i] == SHORT:
            inverse[i] = dom.number(1.0) / dom.number(family.epsilon)
        else:
            inverse[i] = dom.number(1.0) / square_root(dom, squares[i])
    return a * inverse, inverse


def _bounded_direction(dom: BoundDomain, a: Bounded, kinds: np.ndarray, family: Cosine) -> tuple[Bounded, Bounded]:
    fmt, width = _format(dom, "dot"), a.value.shape[-1]
    unit = max(fmt.unit_roundoff, dom.unit)
    with np.errstate(all="ignore"):
        squares = np.sum(a.value * a.value, axis=-1, keepdims=True)
        length = np.sqrt(squares)
        length = np.where(kinds == SHORT, family.epsilon, length)
        length = np.where(kinds == DEAD, 1.0, length)
        roundings = _DIRECTION_ROUNDINGS * unit + (width / 2 + 1) * dom.unit
        # A square, or a partial sum, may be flushed to zero: that moves the sum by at most `tiny` each.
        flushed = (width + 1) * fmt.tiny / np.where(length == 0.0, 1.0, length * length)
        relative = np.expm1(roundings / (1.0 - unit)) * (1.0 + flushed) + flushed
        # A vector that is off by e in norm has a length off by e, and a direction off by at most 2 e over its length.
        moved = np.sqrt(np.sum(a.bound * a.bound, axis=-1, keepdims=True)) / np.where(length == 0.0, 1.0, length)
        relative = relative + moved * (1.0 + relative)
        small = (flushed < 0.25) & (moved < 0.25) & (relative < 0.5)
        broken = ~(small & (squares * (1.0 + relative) < fmt.largest) & (length > 0.0)) & (kinds != DEAD)
        inverse = np.nan_to_num(np.where(kinds == DEAD, 0.0, 1.0 / length), posinf=0.0)
        value = np.nan_to_num(np.where(kinds == DEAD, 0.0, a.value / length), posinf=0.0, neginf=0.0)
        # The relative error of an inverse is at most e / (1 - e).
        relative = np.where(broken, np.inf, relative / (1.0 - np.minimum(relative, 0.5)))
        error = np.where(kinds == DEAD, 0.0, relative * np.abs(value) + 2.0 * moved * (1.0 + relative) + 4 * fmt.tiny)
        # A direction has no entry beyond one, in exact arithmetic; a kernel may pass it by its error only.
        error = np.where(np.isnan(error) | broken, np.inf, error)
        inverse_error = np.where(kinds == DEAD, 0.0, relative * inverse + 4 * fmt.tiny)
        inverse_error = np.where(np.isnan(inverse_error) | broken | (inverse >= fmt.largest), np.inf, inverse_error)
        if family.zero_norm == "clamp":
            # Where the length may fall on either side of the clamp, so may the derivative.
            near = np.abs(np.sqrt(squares) - family.epsilon) <= 2.0 * relative * (np.sqrt(squares) + family.epsilon)
            inverse_error = np.where(near, np.inf, inverse_error)
    return Bounded(value, error), Bounded(inverse, inverse_error)


def turn(dom: Domain[Any], stage: str, unit: Any, inverse: Any, g: Any, kinds: np.ndarray) -> Any:
    """(g - û ⟨û, g⟩) / length: the derivative of `direction` applied to g, and its own transpose.

    Below a clamp the length is a constant, so there only g / length is left; zero for a DEAD row.
    """
    if isinstance(dom, BoundDomain):
        return _bounded_turn(dom, stage, unit, inverse, g, kinds)
    assert isinstance(dom, ArrayDomain)
    along = unit * dom.sum(unit * g, -1)
    if isinstance(dom, Float64Domain):
        return (g - np.where(kinds == SHORT, 0.0, along)) * inverse
    zero = dom.number(0.0)
    for i in np.argwhere(np.broadcast_to(kinds, along.shape) == SHORT):
        along[tuple(i)] = zero
    return (g - along) * inverse


def _bounded_turn(
    dom: BoundDomain, stage: str, unit: Bounded, inverse: Bounded, g: Bounded, kinds: np.ndarray
) -> Bounded:
    fmt, width = _format(dom, "scaled_grad"), g.value.shape[-1]
    step = max(fmt.unit_roundoff, dom.unit)
    rate = np.expm1((_DIRECTION_GRADIENT_ROUNDINGS * step + width * dom.unit) / (1.0 - step))
    with np.errstate(all="ignore"):
        inner = np.sum(unit.value * g.value, axis=-1, keepdims=True)
        sizes = np.sum(unit.computed * g.computed, axis=-1, keepdims=True)
        spread = np.sum(unit.bound * g.computed + unit.magnitude * g.bound, axis=-1, keepdims=True)
        spread = spread + width * fmt.tiny
        along = unit.value * inner
        along_error = unit.bound * (sizes + spread) + unit.magnitude * spread + rate * unit.computed * sizes
        along = np.where(kinds == SHORT, 0.0, along)
        along_error = np.where(kinds == SHORT, 0.0, along_error)
        along_size = np.where(kinds == SHORT, 0.0, unit.computed * sizes)
        difference = g.value - along
        error = g.bound + along_error + rate * (g.computed + along_size) + 4 * fmt.tiny
        value = difference * inverse.value
        # Division by the length may come first: its rounding is relative to each term, not to their difference.
        total = error * inverse.magnitude + (g.computed + along_size) * inverse.bound + 4 * fmt.tiny
        # A kernel may divide by the length twice before it multiplies: what is flushed there is scaled by g.
        total = total + fmt.tiny * (width + np.sum(g.computed, axis=-1, keepdims=True)) * unit.magnitude
        top = (g.computed + along_size) * inverse.computed
        total = np.where(np.isnan(total) | ~(top < fmt.largest) | ~np.isfinite(value), np.inf, total)
        total = np.where(kinds == DEAD, 0.0, total)
    return _stored(dom, stage, np.nan_to_num(np.where(kinds == DEAD, 0.0, value)), total)
