"""What the reducer promises of every predicate: a smallest call that fails, the same each time, within its budget."""

from __future__ import annotations

import numpy as np
import pytest

from attnspec.pyspec import AttentionCall, CallError
from attnspec.pyspec.calls.call import Axes
from attnspec.pyspec.calls.cut import CALL_AXES, take
from attnspec.strategies import call_at, reduce_call
from tests.strategies.failing import REAL, Predicate, failing, reduced

AXIS_PREDICATES: list[Predicate] = [
    lambda c: c.axes.keys % 5 == 2 and c.axes.queries % 2 == 1,
    lambda c: c.axes.batch * c.axes.query_heads * c.axes.queries >= 7,
    lambda c: bool((c.visible.sum(axis=-1) >= 3).any()) and bool((c.visible.sum(axis=-1) == 1).any()),
    lambda c: len(set(c.head_map)) > 1 and c.axes.key_width + c.axes.value_width >= 5,
]


@pytest.mark.parametrize("fails", AXIS_PREDICATES)
def test_no_single_position_can_go(fails: Predicate) -> None:
    """1-minimal: deleting any one position of any axis passes, breaks the call, or empties the axis."""
    for call in reduced(fails, 3):
        for axis in CALL_AXES:
            n = getattr(call.axes, axis)
            for gone in range(n if n > 1 else 0):
                try:
                    smaller = take(call, axis, [i for i in range(n) if i != gone])
                except CallError:
                    continue
                assert not fails(smaller), (axis, gone)


@pytest.mark.parametrize("fails", AXIS_PREDICATES)
def test_reducing_is_deterministic_and_a_fixed_point(fails: Predicate) -> None:
    for call in failing(fails, 2):
        one, two = reduce_call(call, fails), reduce_call(call, fails)
        again = reduce_call(one, fails)
        for name in ("query", "key", "value"):
            assert np.array_equal(getattr(one, name), getattr(two, name))
            assert np.array_equal(getattr(one, name), getattr(again, name))
        assert one.axes == two.axes == again.axes


@pytest.mark.parametrize("budget", [1, 2, 10, 50])
def test_the_budget_is_kept_and_the_result_still_fails(budget: int) -> None:
    def fails(c: AttentionCall) -> bool:
        return c.axes.keys >= 5 and bool((c.value < 0).any())

    for call in failing(fails, 3):
        runs = 0

        def counted(candidate: AttentionCall) -> bool:
            nonlocal runs
            runs += 1
            return fails(candidate)

        result = reduce_call(call, counted, budget)
        assert runs <= budget
        assert fails(result)


def test_only_the_call_itself_fails() -> None:
    call = call_at(77, 5, "pr", REAL)
    assert reduce_call(call, lambda c: c is call) is call


def test_a_call_that_passes_is_refused() -> None:
    with pytest.raises(ValueError, match="does not fail"):
        reduce_call(call_at(0, 0), lambda c: False)
    with pytest.raises(ValueError, match="budget = 0"):
        reduce_call(call_at(0, 0), lambda c: True, budget=0)


def test_a_predicate_that_cannot_take_a_call_does_not_stop_the_search() -> None:
    call = next(failing(lambda c: c.bias is not None and c.axes.keys > 4, 1))

    def fails(c: AttentionCall) -> bool:
        if c.bias is None:
            raise CallError("needs a bias")
        return c.axes.keys > 4

    assert reduce_call(call, fails).axes == Axes(1, 1, 1, 1, 5, 1, 1)


def test_other_errors_of_the_predicate_are_not_hidden() -> None:
    def fails(c: AttentionCall) -> bool:
        if c.grad_output is None:
            raise ZeroDivisionError
        return True

    with pytest.raises(ZeroDivisionError):
        reduce_call(call_at(77, 0, "pr", REAL), fails)


def test_zero_lengths_stay_and_no_axis_is_emptied() -> None:
    seen = 0
    for index in range(300):
        call = call_at(78, index, "smoke")
        result = reduce_call(call, lambda c: True)
        assert all((getattr(result.axes, a) == 0) == (getattr(call.axes, a) == 0) for a in CALL_AXES)
        seen += 0 in (call.axes.batch, call.axes.queries, call.axes.keys)
    assert seen > 3
