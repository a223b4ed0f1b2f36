"""Cutting a call along an axis cuts everything that has the axis."""

from __future__ import annotations

import numpy as np
import pytest

from attnspec.pyspec import CallError, make_call
from attnspec.pyspec.calls.cut import CALL_AXES, take, take_heads
from attnspec.pyspec.calls.score import Bilinear
from attnspec.strategies import call_at
from tests.strategies.failing import REAL, failing


def test_take_cuts_every_field_along_its_own_axis() -> None:
    for index in range(120):
        call = call_at(79, index, "smoke", REAL)
        for axis in CALL_AXES:
            n = getattr(call.axes, axis)
            if axis == "key_heads" or call.encoding == "causal_flag":
                continue
            part = take(call, axis, range(0, n, 2))
            position = {"batch": 0, "query_heads": 1, "queries": 2, "keys": 3}.get(axis)
            if position is not None:
                assert np.array_equal(part.visible, np.take(call.visible, range(0, n, 2), axis=position))
                if call.multiplier is not None:
                    assert np.array_equal(part.multiplier, np.take(call.multiplier, range(0, n, 2), axis=position))
            assert getattr(part.axes, axis) == len(range(0, n, 2))


def test_take_makes_a_causal_flag_mean_the_new_lengths() -> None:
    call = next(failing(lambda c: c.encoding == "causal_flag" and min(c.axes.queries, c.axes.keys) > 3, 1))
    part = take(take(call, "keys", [1, 3]), "queries", [2, 0, 3])
    assert part.encoding == "causal_flag"
    assert part.visible[0, 0].tolist() == [[True, False], [True, True], [True, True]]
    assert np.array_equal(part.key, call.key[:, :, [1, 3]])
    assert np.array_equal(part.query, call.query[:, :, [2, 0, 3]])


def test_take_heads_drops_unread_key_heads_and_refuses_to_drop_read_ones() -> None:
    call = next(failing(lambda c: len(set(c.head_map)) > 1, 1))
    one = take_heads(call, [call.axes.query_heads - 1])
    assert (one.axes.query_heads, one.axes.key_heads, one.head_map) == (1, 1, (0,))
    assert np.array_equal(one.key[:, 0], call.key[:, call.head_map[-1]])
    with pytest.raises(CallError, match="head_map"):
        take(call, "key_heads", [call.head_map[0]])
    with pytest.raises(ValueError, match="axis = 'colour': expected one of batch"):
        take(call, "colour", [0])


def test_taking_heads_takes_their_sinks_slopes_and_parameters() -> None:
    q, k = np.ones((1, 4, 2, 3)), np.ones((1, 2, 5, 3))
    slopes = np.array([1.0, 2.0, 3.0, 4.0])
    part = take(make_call(q, k, k, slopes=slopes, sink=-slopes), "query_heads", [3, 1, 1])
    assert part.slopes is not None
    assert part.sink is not None
    assert (part.slopes.tolist(), part.sink.tolist(), part.head_map) == ([4, 2, 2], [-4, -2, -2], (1, 0, 0))
    each = Bilinear(np.arange(36.0).reshape(4, 3, 3))
    narrow = take(take(make_call(q, k, k, score=each), "query_heads", [2]), "key_width", [2, 0])
    assert narrow.score.parameters()["metric"].tolist() == [[[26.0, 24.0], [20.0, 18.0]]]
    shared = take(make_call(q, k, k, score=Bilinear(each.metric[:1])), "query_heads", [0, 3])
    assert shared.score.parameters()["metric"].shape == (1, 3, 3)
