"""Plans and calls by number: pure, the same in every process, and within the features."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnspec.pyspec import AttentionCall, call_from_json, call_to_json
from attnspec.pyspec.calls.call import LAYOUTS, Axes
from attnspec.pyspec.calls.features import MODIFIERS
from attnspec.pyspec.heads import grouped
from attnspec.pyspec.visibility import upper_left
from attnspec.strategies import PROFILES, CallPlan, Features, build, call_at, draw_plan, plan_at, small
from attnspec.strategies.chooser import generator_chooser
from attnspec.strategies.hypothesis_calls import hypothesis_chooser
from attnspec.strategies.masks import MaskPlan

NARROW = Features(
    dtypes=("float32",),
    encodings=("bool",),
    layouts=("contiguous",),
    gradients=False,
    bias=False,
    value_width_differs=False,
    grouped_heads=False,
    any_head_map=False,
    dropout_multiplier=False,
    empty_rows=False,
    zero_sizes=False,
    any_scale=False,
)
OFF = tuple(name for name, value in NARROW.__dict__.items() if value is False)


def digest(call: AttentionCall) -> str:
    return hashlib.sha256(call_to_json(call).encode()).hexdigest()


def test_a_call_is_a_function_of_seed_and_index_alone() -> None:
    forward = [digest(call_at(3, index)) for index in range(40)]
    backward = [digest(call_at(3, index)) for index in reversed(range(40))]
    assert forward == backward[::-1]
    assert len(set(forward)) == 40
    assert forward != [digest(call_at(4, index)) for index in range(40)]


def test_another_process_builds_the_same_calls() -> None:
    program = (
        "import hashlib; from attnspec.pyspec import call_to_json; from attnspec.strategies import call_at\n"
        "for i in range(25): print(hashlib.sha256(call_to_json(call_at(9, i, 'smoke')).encode()).hexdigest())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=60, check=True
    )
    assert done.stdout.split() == [digest(call_at(9, index, "smoke")) for index in range(25)]


def test_equal_plans_build_the_same_call() -> None:
    for index in range(40):
        plan = plan_at(1, index)
        assert digest(build(plan)) == digest(build(replace(plan)))


def test_the_fill_seed_changes_values_and_not_the_structure() -> None:
    plan = CallPlan(Axes(2, 1, 1, 5, 6, 3, 3), values="gaussian", gradient="gaussian", mask=MaskPlan("random", 0.5, ()))
    one, two = build(plan), build(replace(plan, seed=1))
    assert one.axes == two.axes
    for name in ("query", "key", "value", "grad_output"):
        assert not np.array_equal(getattr(one, name), getattr(two, name))
    assert not np.array_equal(one.visibility.mask, two.visibility.mask)


def test_parts_do_not_disturb_each_other() -> None:
    plan = plan_at(1, 0, "pr", Features(zero_sizes=False))
    plain, other = (
        build(replace(plan, bias="none", encoding="bool")),
        build(replace(plan, bias="gaussian", encoding="additive")),
    )
    assert np.array_equal(plain.query, other.query)
    assert np.array_equal(plain.grad_output, other.grad_output)
    assert np.array_equal(plain.visibility.mask, other.visibility.mask)


def test_the_origin_tells_where_a_call_comes_from() -> None:
    call = call_at(5, 17, "smoke")
    plan = plan_at(5, 17, "smoke")
    assert call.origin == {**plan.labels(), "seed": "5", "index": "17"}
    assert call.origin["mask"] == plan.mask.family


def test_calls_survive_json() -> None:
    for index in range(60):
        call = call_at(8, index, "smoke")
        assert call_to_json(call_from_json(call_to_json(call))) == call_to_json(call)


def test_the_first_option_of_every_choice_makes_the_simplest_call() -> None:
    plan = draw_plan(lambda name, options: options[0], "pr", Features())
    assert plan == CallPlan(Axes(1, 1, 1, 1, 1, 1, 1), dtype="float64", encoding="none", gradient="ones")
    assert set(OFF) == {name for name, value in Features().__dict__.items() if isinstance(value, bool)}
    assert [name for name, value in Features().__dict__.items() if value is False] == list(MODIFIERS)


@pytest.mark.parametrize("off", OFF)
def test_a_feature_that_is_off_is_never_drawn(off: str) -> None:
    check_features(Features(**{off: False}), 250)


@pytest.mark.parametrize(
    "features",
    [
        NARROW,
        replace(NARROW, encodings=("none",)),
        replace(NARROW, encodings=("causal_flag",)),
        replace(NARROW, encodings=("none", "causal_flag"), zero_sizes=True),
        replace(NARROW, encodings=("additive",), bias=True),
        Features(encodings=("bool", "causal_flag")),
        Features(encodings=("additive",)),
        Features(dtypes=("bfloat16",), layouts=LAYOUTS[1:3]),
        Features(empty_rows=False, value_width_differs=False),
    ],
)
def test_features_are_honoured_together(features: Features) -> None:
    check_features(features, 250)


def check_features(features: Features, count: int) -> None:
    seen: set[str] = set()
    for index in range(count):
        call = call_at(21, index, small("pr"), features)
        a = call.axes
        seen.add(call.encoding)
        assert call.dtype in features.dtypes
        assert call.encoding in features.encodings
        assert {call.layout.query, call.layout.key, call.layout.value} <= set(features.layouts)
        assert (call.grad_output is not None) == features.gradients
        assert call.bias is None or features.bias
        assert a.key_width == a.value_width or features.value_width_differs
        assert call.dropout is None or features.dropout_multiplier
        assert call.scale is None or features.any_scale
        assert call.visible.any(axis=-1).all() or features.empty_rows
        assert features.any_head_map or a.query_heads == 0 or call.head_map == grouped(a.query_heads, a.key_heads)
        assert features.any_head_map or features.grouped_heads or a.query_heads == a.key_heads
        sizes = (*call.score_shape, a.key_heads, a.key_width, a.value_width)
        assert 0 not in sizes or features.zero_sizes
        assert call.softcap is None or features.softcap
        assert call.sink is None or features.sink
    assert seen == set(features.encodings)


def test_the_causal_flag_means_upper_left_on_rectangles() -> None:
    found = [c for c in (call_at(2, i, small("pr")) for i in range(800)) if c.encoding == "causal_flag"]
    assert len(found) >= 10
    assert any(c.axes.queries > c.axes.keys for c in found)
    assert any(c.axes.queries < c.axes.keys for c in found)
    for call in found:
        assert (call.visible == upper_left(call.axes.queries, call.axes.keys)).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: call_at(0, 0, "nightly"), r"profile = 'nightly': expected one of smoke, pr, release"),
        (lambda: small("tiny"), r"profile = 'tiny': expected one of"),
        (lambda: Features(dtypes=("float8",)), r"features.dtypes = 'float8': expected one of float64, float32"),
        (lambda: Features(encodings=()), r"features.encodings = \(\): expected a tuple of at least one name"),
        (lambda: Features(layouts=("sparse",)), r"features.layouts = 'sparse': expected one of contiguous"),
        (lambda: call_at(-1, 0), r"seed = -1, index = 0: expected numbers that are not negative"),
        (lambda: call_at(0, -3), r"seed = 0, index = -3"),
        (
            lambda: build(CallPlan(Axes(1, 1, 1, 1, 1, 1, 1), values="nice")),
            r"value profile = 'nice': expected one of zeros",
        ),
        (lambda: build(CallPlan(Axes(1, 1, 1, 1, 1, 1, 1), dtype="int8")), r"unknown dtype 'int8'"),
        (
            lambda: build(CallPlan(Axes(1, 1, 1, 1, 1, 1, 1), mask=MaskPlan("star"))),
            r"mask family = 'star': expected one of",
        ),
        (lambda: build(CallPlan(Axes(1, 1, 1, 1, 1, 1, 1), bias="odd")), r"bias kind = 'odd': expected one of none"),
        (lambda: build(CallPlan(Axes(1, 1, 1, 1, 1, 1, 1), gradient="odd")), r"gradient profile = 'odd'"),
        (lambda: build(CallPlan(Axes(1, 1, 1, 1, 1, 1, 1), dropout="p=2")), r"dropout = 'p=2': expected one of none"),
    ],
)
def test_unknown_names_are_refused(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]


def test_profiles_are_named_by_their_keys() -> None:
    assert {name: profile.name for name, profile in PROFILES.items()} == {name: name for name in PROFILES}


def test_the_generator_chooser_is_uniform_over_the_options() -> None:
    choose = generator_chooser(np.random.default_rng(0))
    drawn = [choose("n", range(4)) for _ in range(4000)]
    assert min(drawn.count(n) for n in range(4)) > 850


def test_hypothesis_never_draws_a_truth_value_for_a_number() -> None:
    """(0, 1) and (False, True) are equal, and strategies are kept by their options."""
    chosen: list[object] = []

    @settings(max_examples=20, database=None)
    @given(st.data())
    def draws(data: st.DataObject) -> None:
        choose = hypothesis_chooser(data.draw)
        for options in ((False,), (0,), (False, True), (0, 1)):
            found = choose("any", options)
            assert type(found) is type(options[0])
            chosen.append(found)

    draws()
    assert chosen
