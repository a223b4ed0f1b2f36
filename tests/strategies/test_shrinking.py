"""Hypothesis shrinks calls to exactly the expected minimal ones, and its health checks have nothing to say."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st

from attnspec.pyspec import AttentionCall
from attnspec.pyspec.calls.call import Axes, representable
from attnspec.strategies import (
    Features,
    attention_calls,
    axes,
    call_plans,
    gradients,
    head_maps,
    small,
    values,
    visibilities,
)

FIXED = settings(max_examples=3000, database=None, derandomize=True, deadline=None)
SAMPLE = settings(max_examples=60, database=None, derandomize=True, deadline=None)


def minimal(predicate: Callable[[AttentionCall], bool], features: Features | None = None) -> AttentionCall:
    return find(attention_calls("pr", features), predicate, settings=FIXED)


def assert_plain(call: AttentionCall, **sizes: int) -> None:
    """Everything is as simple as can be, but for the given sizes."""
    assert call.axes == Axes(**{**dict.fromkeys(Axes.__dataclass_fields__, 1), **sizes})
    assert call.dtype == "float64"
    assert not call.query.any()
    assert not call.key.any()
    assert not call.value.any()
    assert call.bias is None
    assert call.dropout is None
    assert call.scale is None
    assert call.layout.query == call.layout.key == call.layout.value == call.layout.mask == "contiguous"


def test_the_minimal_call_is_one_of_everything() -> None:
    call = minimal(lambda c: True)
    assert_plain(call)
    assert call.visible.all()
    assert call.encoding == "none"
    assert call.grad_output is not None
    assert call.grad_output.tolist() == [[[[1.0]]]]


def test_a_hidden_key_shrinks_to_one_hidden_key() -> None:
    call = minimal(lambda c: not c.visible.all())
    assert_plain(call)
    assert call.visibility.mask.tolist() == [[[[False]]]]
    assert call.encoding == "bool"


def test_an_empty_row_shrinks_to_one_empty_row() -> None:
    call = minimal(lambda c: bool((~c.visible.any(axis=-1)).any()))
    assert_plain(call)
    assert call.visibility.mask.tolist() == [[[[False]]]]


def test_an_empty_row_over_a_full_one_shrinks_to_two_queries() -> None:
    def predicate(call: AttentionCall) -> bool:
        full, empty = call.visible.all(axis=-1), ~call.visible.any(axis=-1)
        return call.axes.keys > 0 and bool((empty[:, :, :-1] & full[:, :, 1:]).any())

    call = minimal(predicate)
    assert_plain(call, queries=2)
    assert call.visible.tolist() == [[[[False], [True]]]]


def test_a_rectangle_shrinks_to_one_by_two_either_way() -> None:
    call = minimal(lambda c: c.axes.queries != c.axes.keys)
    assert sorted((call.axes.queries, call.axes.keys)) == [1, 2]
    assert_plain(call, queries=call.axes.queries, keys=call.axes.keys)


def test_many_keys_shrink_to_the_first_size_that_does() -> None:
    assert_plain(minimal(lambda c: c.axes.keys >= 17), keys=17)


def test_many_queries_shrink_to_the_first_size_that_does() -> None:
    assert_plain(minimal(lambda c: c.axes.queries >= 33), queries=33)


def test_grouped_heads_shrink_to_two_over_one() -> None:
    assert_plain(minimal(lambda c: c.axes.query_heads > c.axes.key_heads > 0), query_heads=2)


def test_a_width_that_differs_shrinks_to_one_and_two() -> None:
    assert_plain(
        minimal(lambda c: c.axes.key_width != c.axes.value_width and min(c.axes.key_width, c.axes.value_width) > 0),
        value_width=2,
    )


def test_a_value_that_is_not_zero_shrinks_to_ones() -> None:
    call = minimal(lambda c: bool(c.value.any()))
    assert call.axes == Axes(1, 1, 1, 1, 1, 1, 1)
    assert call.value.tolist() == call.key.tolist() == call.query.tolist() == [[[[1.0]]]]


def test_without_empty_rows_a_hidden_key_needs_a_visible_one() -> None:
    call = minimal(lambda c: not c.visible.all(), Features(empty_rows=False))
    assert_plain(call, keys=2)
    assert sorted(call.visible.ravel().tolist()) == [False, True]


@SAMPLE
@given(attention_calls("smoke"))
def test_drawn_calls_are_calls(call: AttentionCall) -> None:
    assert representable(call)
    assert call.grad_output is not None


@SAMPLE
@given(attention_calls(small("pr"), Features(dtypes=("bfloat16",), gradients=False, empty_rows=False)))
def test_drawn_calls_honour_the_features(call: AttentionCall) -> None:
    assert call.dtype == "bfloat16"
    assert call.grad_output is None
    assert call.visible.any(axis=-1).all()


@SAMPLE
@given(st.data(), axes(small("smoke")))
def test_parts_fit_the_sizes(data: st.DataObject, sizes: Axes) -> None:
    query, key, value = data.draw(values(sizes, "float16"))
    assert query.shape == (sizes.batch, sizes.query_heads, sizes.queries, sizes.key_width)
    assert key.shape == (sizes.batch, sizes.key_heads, sizes.keys, sizes.key_width)
    assert value.shape == (sizes.batch, sizes.key_heads, sizes.keys, sizes.value_width)
    grad = data.draw(gradients(sizes, "float16"))
    assert grad.shape == (sizes.batch, sizes.query_heads, sizes.queries, sizes.value_width)
    visibility = data.draw(visibilities(sizes))
    full = (sizes.batch, sizes.query_heads, sizes.queries, sizes.keys)
    assert np.broadcast_to(visibility.mask, full).shape == full


@SAMPLE
@given(head_maps())
def test_head_maps_name_key_heads(head_map: tuple[int, ...]) -> None:
    assert head_map
    assert min(head_map) >= 0


def test_named_profiles_restrict_the_parts() -> None:
    sizes = Axes(1, 1, 1, 2, 3, 4, 5)
    query, _, _ = find(values(sizes, profiles=("constant_rows",)), lambda t: True, settings=FIXED)
    assert (query == query[..., :1]).all()
    grad = find(gradients(sizes, profiles=("one_hot",)), lambda g: True, settings=FIXED)
    assert grad.sum() == 1
    with pytest.raises(ValueError, match="value profile = 'odd'"):
        values(sizes, profiles=("odd",))
    with pytest.raises(ValueError, match="gradient profile = 'odd'"):
        gradients(sizes, profiles=("odd",))
    with pytest.raises(ValueError, match="profile = 'odd': expected one of smoke, pr, release"):
        call_plans("odd")
