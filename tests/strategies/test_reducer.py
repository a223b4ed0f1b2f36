"""The reducer finds exactly the expected minimal calls."""

from __future__ import annotations

import numpy as np

from attnspec.pyspec import AttentionCall, evaluate, make_call
from attnspec.pyspec.calls.call import Axes, Layout
from attnspec.pyspec.calls.cut import take
from attnspec.pyspec.calls.score import Bilinear
from attnspec.pyspec.domains.float64 import Float64Domain
from attnspec.strategies import Features, reduce_call, traits
from tests.strategies.failing import reduced


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
