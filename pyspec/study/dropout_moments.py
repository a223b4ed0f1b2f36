"""Dropout by chance: exact moments of a row, every mask enumerated, and what renormalising would do instead."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any


def _fractions(row: Sequence[Any]) -> list[Fraction]:
    return [Fraction(x) for x in row]


def _rate(probability: Any) -> Fraction:
    rate = Fraction(probability)
    if not 0 <= rate < 1:
        raise ValueError(f"dropout probability {probability!r}: expected 0 <= p < 1")
    return rate


@dataclass(frozen=True)
class Moments:
    """Exact moments of one row under independent dropout: P̃ = P ⊙ Z, Õ = P̃ V, R = Σ P̃.

    mean: E P̃ = P. variance: Var P̃_j = p/(1-p) P_j². row_sum_mean: E R = Σ P. row_sum_variance: Var R.
    output_mean: E Õ = P V. output_covariance: Cov Õ = p/(1-p) Σ P_j² v_j v_jᵀ. all_dropped: the probability that
    no legal key is kept, p^n.
    """

    mean: tuple[Fraction, ...]
    variance: tuple[Fraction, ...]
    row_sum_mean: Fraction
    row_sum_variance: Fraction
    output_mean: tuple[Fraction, ...]
    output_covariance: tuple[tuple[Fraction, ...], ...]
    all_dropped: Fraction


def moments(weights: Sequence[Any], values: Sequence[Sequence[Any]], probability: Any) -> Moments:
    """Moments of a row of weights over its legal keys, and of its output. Numbers may be Fractions or decimals as text.

    values: one row a key. Nothing here is sampled. Lean: dropout_multiplier_mean_one is E Z = 1.
    """
    p, rate = _fractions(weights), _rate(probability)
    v = [_fractions(row) for row in values]
    if len(v) != len(p) or len({len(row) for row in v}) > 1:
        raise ValueError(f"{len(p)} weights and {len(v)} rows of values: expected one row of equal width a key")
    ratio = rate / (1 - rate)
    width = range(len(v[0]) if v else 0)
    squares = [x * x for x in p]
    return Moments(
        mean=tuple(p),
        variance=tuple(ratio * s for s in squares),
        row_sum_mean=sum(p, Fraction(0)),
        row_sum_variance=ratio * sum(squares, Fraction(0)),
        output_mean=tuple(sum((x * row[c] for x, row in zip(p, v, strict=True)), Fraction(0)) for c in width),
        output_covariance=tuple(
            tuple(
                ratio * sum((s * row[c] * row[d] for s, row in zip(squares, v, strict=True)), Fraction(0))
                for d in width
            )
            for c in width
        ),
        all_dropped=rate ** len(p),
    )


def realisations(keys: int, probability: Any) -> Iterator[tuple[tuple[int, ...], Fraction]]:
    """Every keep mask of a row with its probability: 2^keys of them, exactly."""
    rate = _rate(probability)
    for mask in product((0, 1), repeat=keys):
        kept = sum(mask)
        yield mask, (1 - rate) ** kept * rate ** (keys - kept)


Variant = Callable[[Sequence[Fraction], tuple[int, ...], Fraction], list[Fraction]]


def inverted(weights: Sequence[Fraction], mask: tuple[int, ...], rate: Fraction) -> list[Fraction]:
    """Ordinary dropout: P ⊙ M / (1 - p)."""
    return [x * m / (1 - rate) for x, m in zip(weights, mask, strict=True)]


def renormalised(weights: Sequence[Fraction], mask: tuple[int, ...], rate: Fraction) -> list[Fraction]:
    """Kept weights divided by their sum; the zero row when all are dropped.

    The same as dropping keys before the normaliser: softmax over the kept keys.
    """
    kept = [x * m for x, m in zip(weights, mask, strict=True)]
    total = sum(kept, Fraction(0))
    return [x / total if total else Fraction(0) for x in kept]


def renormalised_or_whole(weights: Sequence[Fraction], mask: tuple[int, ...], rate: Fraction) -> list[Fraction]:
    """Kept weights divided by their sum; the undropped row when all are dropped."""
    return renormalised(weights, mask, rate) if any(mask) else list(weights)


VARIANTS: dict[str, Variant] = {
    "inverted": inverted,
    "renormalised": renormalised,
    "renormalised_or_whole": renormalised_or_whole,
}


def expectation(weights: Sequence[Any], probability: Any, variant: Variant = inverted) -> list[Fraction]:
    """E of the consumed weights by enumeration of every mask. Equal to the weights for `inverted` only."""
    p, rate = _fractions(weights), _rate(probability)
    total = [Fraction(0)] * len(p)
    for mask, chance in realisations(len(p), rate):
        total = [t + chance * x for t, x in zip(total, variant(p, mask, rate), strict=True)]
    return total


def mean_radius(trials: int, low: float, high: float, error: float) -> float:
    """Hoeffding: a mean of `trials` independent numbers in [low, high] is farther than this from its expectation
    with probability at most `error`."""
    return (high - low) * math.sqrt(math.log(2.0 / error) / (2.0 * trials))
