"""States over blocks of keys, merged in any order with any shifts, give the direct softmax: exactly, and in balls."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, fmpq

from attnspec.pyspec import online
from attnspec.pyspec.domains import BallDomain, ExactDomain
from attnspec.pyspec.domains.ball import precision


class PowerOfTwo(ExactDomain):
    """Rationals with exp(x) = 2^x for whole x: a true exponential, so shifts cancel exactly."""

    def exp(self, x: fmpq) -> fmpq:
        assert x.q == 1
        return fmpq(2) ** int(x.p) if x >= 0 else 1 / fmpq(2) ** int(-x.p)


EXACT = PowerOfTwo()


def direct(scores: list[int], seen: list[bool], value: np.ndarray) -> list[Fraction]:
    numerators = [Fraction(2) ** s if v else Fraction(0) for s, v in zip(scores, seen, strict=True)]
    mass = sum(numerators)
    return [
        sum((n * Fraction(x) for n, x in zip(numerators, column, strict=True)), Fraction(0)) / (mass or 1)
        for column in value.T
    ]


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_any_order_and_any_shift_exactly(order: tuple[int, ...]) -> None:
    rng = np.random.default_rng(sum(10**n * k for n, k in enumerate(order)))
    for seen in (rng.random(12) < 0.6, np.ones(12, bool), np.arange(12) >= 9, np.zeros(12, bool)):
        scores, value = rng.integers(-40, 40, size=12), rng.integers(-5, 6, size=(12, 2)).astype(float)
        s, v = EXACT.lift(scores), EXACT.lift(value)
        blocks = [
            online.block(EXACT, EXACT.number(float(rng.integers(-50, 50))), seen[at], s[at], v[at])
            for at in (slice(3 * n, 3 * n + 3) for n in order)
        ]
        while len(blocks) > 1:
            # Merged from either end, so that trees of both kinds are seen.
            first, second = (blocks.pop(), blocks.pop()) if rng.integers(2) else (blocks.pop(0), blocks.pop(0))
            merged = online.merge(EXACT, EXACT.number(float(rng.integers(-50, 50))), first, second)
            blocks.insert(int(rng.integers(len(blocks) + 1)), merged)
        found = EXACT.lower(online.finish(EXACT, blocks[0]))
        assert found.tolist() == direct(scores.tolist(), seen.tolist(), value)


def test_merging_commutes_and_associates() -> None:
    rng = np.random.default_rng(0)
    seen = np.ones(2, bool)
    a, b, c = (
        online.block(
            EXACT,
            EXACT.number(n),
            seen,
            EXACT.lift(rng.integers(-9, 9, 2)),
            EXACT.lift(rng.integers(-3, 3, (2, 1))),
        )
        for n in (1.0, -4.0, 7.0)
    )
    shift = EXACT.number(3.0)
    left = online.merge(EXACT, shift, online.merge(EXACT, EXACT.number(-2.0), a, b), c)
    right = online.merge(EXACT, shift, a, online.merge(EXACT, EXACT.number(5.0), c, b))
    assert left.mass == right.mass
    assert left.out.tolist() == right.out.tolist()


def test_a_block_without_a_visible_key_changes_nothing() -> None:
    s, v = EXACT.lift(np.array([1.0, 2.0])), EXACT.lift(np.array([[1.0], [3.0]]))
    shift = EXACT.number(0.0)
    seen = online.block(EXACT, shift, np.array([True, True]), s, v)
    nothing = online.block(EXACT, EXACT.number(30.0), np.array([False, False]), s, v)
    assert nothing.mass == 0
    merged = online.merge(EXACT, shift, nothing, seen)
    assert online.finish(EXACT, merged).tolist() == online.finish(EXACT, seen).tolist()
    assert online.finish(EXACT, nothing).tolist() == [0]


def test_merged_balls_overlap_the_direct_ones() -> None:
    """Logits of hundreds, running maxima as shifts, blocks of uneven lengths, one of them hidden throughout."""
    domain = BallDomain()
    rng = np.random.default_rng(3)
    scores, value = 300 * rng.standard_normal(10), rng.standard_normal((10, 3))
    seen = np.arange(10) >= 2
    with precision(150):
        s, v = domain.lift(scores), domain.lift(value)
        weights = domain.softmax(seen[None, None, None], s[None, None, None])
        wanted = domain.matmul(weights, v[None, None])[0, 0, 0]
        state = None
        for at in (slice(0, 2), slice(2, 3), slice(3, 7), slice(7, 10)):
            part = online.block(domain, arb(float(scores[at].max())), seen[at], s[at], v[at])
            state = part if state is None else online.merge(domain, max(state.shift, part.shift), part, state)
        assert state is not None
        found = online.finish(domain, state)
        for x, y in zip(found, wanted, strict=True):
            assert x.overlaps(y)
            assert float(x.rad()) < 1e-35
