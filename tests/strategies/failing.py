"""Drawn calls for which a predicate holds, and what they reduce to."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from attnspec.pyspec import AttentionCall
from attnspec.strategies import Features, call_at, reduce_call

Predicate = Callable[[AttentionCall], bool]
REAL = Features(zero_sizes=False)


def failing(
    fails: Predicate, count: int = 4, features: Features = REAL, profile: str = "pr"
) -> Iterator[AttentionCall]:
    """The first calls of a stream for which the predicate holds."""
    found = 0
    for index in range(4000):
        call = call_at(77, index, profile, features)
        if fails(call):
            yield call
            found += 1
            if found == count:
                return
    raise AssertionError(f"only {found} of {count} calls fail")


def reduced(fails: Predicate, count: int = 4, features: Features = REAL) -> Iterator[AttentionCall]:
    """What such calls reduce to: each still fails, in the same format and with the same origin."""
    for call in failing(fails, count, features):
        result = reduce_call(call, fails)
        assert fails(result)
        assert result.dtype == call.dtype
        assert result.origin == call.origin
        yield result
