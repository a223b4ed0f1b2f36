"""The reducer finds exactly the expected minimal calls, and never hands back one that passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from attnspec.pyspec import AttentionCall, CallError, evaluate, make_call
from attnspec.pyspec.calls.call import Axes, Layout
from attnspec.pyspec.calls.cut import CALL_AXES, take, take_heads
from attnspec.pyspec.calls.score import Bilinear
from attnspec.pyspec.domains.float64 import Float64Domain
from attnspec.strategies import Features, call_at, reduce_call, traits

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
    for call in failing(fails, count, features):
        result = reduce_call(call, fails)
        assert fails(result)
        assert result.dtype == call.dtype
        assert result.origin == call.origin
        yield result


def assert_plain(call: AttentionCall, **sizes: int) -> None:
    """All fields but the sizes and the numbers are at their simplest."""
    assert call.axes == Axes(**{**dict.fromkeys(Axes.__dataclass_fields__, 1), **sizes})
    assert call.bias is None
    assert call.dropout is None
    assert call.grad_output is None
    assert call.scale is None
    assert call.layout == Layout()
    assert call.visible.all()
    assert call.encoding == "none"


def test_two_visible_keys_and_a_value() -> None:
    def fails(c: AttentionCall) -> bool:
        return c.axes.keys > 1 and bool((c.visible.sum(axis=-1) >= 2).any()) and bool(c.value[:, :, 1].any())

    for call in reduced(fails):
        assert_plain(call, keys=2)
        assert call.value.ravel().tolist() == [0, 1]
        assert not call.query.any()
        assert not call.key.any()


def test_seventeen_keys() -> None:
    for call in reduced(lambda c: c.axes.keys >= 17):
        assert_plain(call, keys=17)
        assert not call.value.any()


def test_an_empty_row_beside_a_full_one() -> None:
    for call in reduced(lambda c: "empty row beside a full one" in traits(c)):
        assert call.axes == Axes(1, 1, 1, 2, 1, 1, 1)
        assert sorted(call.visible.ravel().tolist()) == [False, True]
        assert call.encoding == "bool"


def test_a_hidden_first_tile() -> None:
    for call in reduced(lambda c: "first 16 keys hidden, a later one visible" in traits(c)):
        assert call.axes == Axes(1, 1, 1, 1, 17, 1, 1)
        assert call.visible.ravel().tolist() == [False] * 16 + [True]


def test_a_bias_on_a_hidden_key() -> None:
    for call in reduced(lambda c: "bias on a hidden key" in traits(c)):
        assert call.axes == Axes(1, 1, 1, 1, 1, 1, 1)
        assert call.bias is not None
        assert call.bias.tolist() == [[[[1.0]]]]
        assert call.encoding == "additive"
        assert not call.visible.any()


def test_a_negative_gradient() -> None:
    for call in reduced(lambda c: c.grad_output is not None and bool((c.grad_output < 0).any())):
        assert call.axes == Axes(1, 1, 1, 1, 1, 1, 1)
        assert call.grad_output is not None
        assert call.grad_output.tolist() == [[[[-1.0]]]]


def test_a_row_that_dropout_empties() -> None:
    for call in reduced(lambda c: "dropout loses every key of a row" in traits(c)):
        assert call.axes == Axes(1, 1, 1, 1, 1, 1, 1)
        assert call.dropout is not None
        assert call.dropout.multiplier.tolist() == [[[[0.0]]]]


def test_dropout_keeps_what_it_may() -> None:
    def fails(c: AttentionCall) -> bool:
        return c.multiplier is not None and c.axes.keys == 3 and bool((c.multiplier == 0).any())

    for call in reduced(fails, 2):
        assert call.dropout is not None
        kept = 1 / (1 - call.dropout.probability)
        assert sorted(set(call.dropout.multiplier.ravel().tolist())) == [0.0, kept]
        assert (call.dropout.multiplier == 0).sum() == 1


def test_grouped_heads_stay_grouped() -> None:
    for call in reduced(
        lambda c: c.axes.query_heads > c.axes.key_heads > 0 and c.axes.query_heads % c.axes.key_heads == 0
    ):
        assert_plain(call, query_heads=2)
        assert call.head_map == (0, 0)


def test_two_groups_of_equal_size_reduce_to_two_of_two() -> None:
    def fails(c: AttentionCall) -> bool:
        sizes = [c.head_map.count(g) for g in range(c.axes.key_heads)]
        return len(sizes) > 1 and min(sizes) == max(sizes) > 1

    for call in reduced(fails, 2):
        assert_plain(call, query_heads=4, key_heads=2)
        assert call.head_map == (0, 0, 1, 1)


def test_a_causal_flag_keeps_its_mask_causal() -> None:
    for call in reduced(lambda c: c.encoding == "causal_flag" and c.axes.keys > c.axes.queries > 1):
        assert call.axes == Axes(1, 1, 1, 2, 3, 1, 1)
        assert call.visible.tolist() == [[[[True, False, False], [True, True, False]]]]


def test_a_logit_above_ninety_is_made_of_integers_none_of_which_can_be_less() -> None:
    def fails(c: AttentionCall) -> bool:
        return "|logit| > 90" in traits(c)

    for call in reduced(fails, 4, Features(any_scale=False, bias=False, zero_sizes=False)):
        assert_plain(call, key_width=call.axes.key_width)
        assert not call.value.any()
        for name in ("query", "key"):
            array = getattr(call, name)
            assert (array == np.rint(array)).all()
            for at in range(array.size):
                less = array.copy()
                less.flat[at] -= np.sign(less.flat[at])
                assert not fails(call.but(**{name: less}))


def test_lengths_that_must_be_equal_shrink_together() -> None:
    equal = Features(zero_sizes=False, value_width_differs=False)
    for call in reduced(
        lambda c: c.axes.queries == c.axes.keys > 2 and c.axes.key_width == c.axes.value_width, 2, equal
    ):
        assert_plain(call, queries=3, keys=3)


def test_a_mask_is_stored_no_larger_than_it_varies() -> None:
    def fails(c: AttentionCall) -> bool:
        return min(c.axes.batch, c.axes.query_heads) == 2 and c.axes.keys > 1 and not c.visible[..., 0].any()

    for call in reduced(fails, 4):
        assert call.axes == Axes(2, 2, 1, 1, 2, 1, 1)
        # Hiding every key says the same with one number as hiding the first with two.
        assert call.visibility.mask.tolist() in ([[[[False]]]], [[[[False, True]]]])


def test_layout_and_scale_that_matter_stay() -> None:
    for call in reduced(lambda c: c.layout.key != "contiguous" and c.scale not in (None, 1.0), 2):
        assert call.layout.query == call.layout.value == call.layout.mask == "contiguous"
        assert call.axes == Axes(1, 1, 1, 1, 1, 1, 1)


def test_invalid_queries_reduce_to_one() -> None:
    for call in reduced(lambda c: c.visibility.query_valid is not None and not c.visibility.query_valid.all(), 2):
        assert call.visibility.query_valid is not None
        assert call.visibility.query_valid.tolist() == [[False]]
        assert call.visibility.mask.all()


def loses_the_last_key(call: AttentionCall) -> bool:
    """A kernel with tiles of 16 keys that drops a last tile of one key: is its output wrong?"""
    if call.axes.keys % 16 != 1 or call.axes.keys == 1:
        return False
    domain = Float64Domain()
    right = domain.lower(evaluate(domain, call.but(grad_output=None))["output"])
    shorter = take(call.but(grad_output=None), "keys", range(call.axes.keys - 1))
    wrong = domain.lower(evaluate(domain, shorter)["output"])
    return not np.allclose(right, wrong, rtol=1e-3, atol=1e-30)


def test_a_kernel_that_loses_its_last_tile() -> None:
    for call in reduced(loses_the_last_key, 3):
        assert call.axes == Axes(1, 1, 1, 1, 17, 1, 1)
        assert call.bias is None
        assert call.grad_output is None
        assert np.count_nonzero(call.value) == 1
        assert not call.query.any()


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


def test_score_parameters_are_cut_with_the_call_and_made_simple() -> None:
    rng = np.random.default_rng(0)
    shapes = ((2, 3, 5, 4), (2, 3, 6, 4), (2, 3, 6, 2))
    plain = make_call(*(rng.integers(-3, 4, shape) for shape in shapes), scale=0.5)
    metric = Bilinear(rng.standard_normal((3, 4, 4)).astype(np.float32).astype(float))

    def fails(c: AttentionCall) -> bool:
        return isinstance(c.score, Bilinear) and bool(c.score.metric[:, 0].any())

    result = reduce_call(plain.but(score=metric), fails)
    assert result.axes == Axes(1, 1, 1, 1, 1, 1, 1)
    assert isinstance(result.score, Bilinear)
    assert result.score.metric.tolist() == [[[1.0]]]
    assert not reduce_call(plain.but(score=metric), lambda c: c.axes.keys > 1).score.parameters()


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
