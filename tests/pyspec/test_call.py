"""A call refuses what breaks its contract, and cannot be changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest

from attnspec.pyspec import CallError, Dropout, Layout, Visibility, make_call
from attnspec.pyspec.visibility import upper_left
from tests.pyspec.small_call import MASK, Z, call


def with_entry(shape: tuple[int, ...], at: tuple[int, ...], entry: float) -> np.ndarray:
    array = np.ones(shape)
    array[at] = entry
    return array


# What is wrong, and what the message must say: the field, the value found, what was expected.
BAD: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "dtype": (lambda: call().but(dtype="float8"), ("dtype", "'float8'", "float64, float32, bfloat16, float16")),
    "query axes": (lambda: call(query=np.ones((2, 3, 2))), ("query", "[2, 3, 2]", "four axes")),
    "key axes": (lambda: call().but(key=np.ones((4, 2))), ("key", "four axes")),
    "query type": (lambda: call().but(query=np.ones((1, 2, 3, 2), np.float32)), ("query", "float64")),
    "query no array": (lambda: call().but(query=[[1.0]]), ("query", "numpy array")),
    "key width": (lambda: call(key=np.ones((1, 1, 4, 3))), ("key", "[1, 1, 4, 3]", "[1, 1, 4, 2]")),
    "key batch": (lambda: call(key=np.ones((2, 1, 4, 2))), ("key", "[2, 1, 4, 2]", "[1, 1, 4, 2]")),
    "value length": (lambda: call(value=np.ones((1, 1, 3, 5))), ("value", "[1, 1, 3, 5]", "[1, 1, 4, 5]")),
    "value heads": (lambda: call(value=np.ones((1, 2, 4, 5))), ("value", "[1, 2, 4, 5]", "[1, 1, 4, 5]")),
    "gradient": (lambda: call(grad_output=np.ones((1, 2, 3, 2))), ("grad_output", "[1, 2, 3, 2]", "[1, 2, 3, 5]")),
    "NaN": (lambda: call(query=with_entry((1, 2, 3, 2), (0, 1, 2, 0), np.nan)), ("query[0, 1, 2, 0]", "nan", "finite")),
    "inf": (lambda: call(value=with_entry((1, 1, 4, 5), (0, 0, 3, 4), np.inf)), ("value[0, 0, 3, 4]", "inf", "finite")),
    "not of the dtype": (
        lambda: call(key=with_entry((1, 1, 4, 2), (0, 0, 1, 1), 0.1)),
        ("key[0, 0, 1, 1]", "0.1", "float32", "round_to"),
    ),
    "too large for the dtype": (
        lambda: call(dtype="float16", key=with_entry((1, 1, 4, 2), (0, 0, 0, 0), 65520.0)),
        ("key[0, 0, 0, 0]", "65520.0", "float16"),
    ),
    "bias shape": (lambda: call(bias=np.ones((1, 3, 3, 4))), ("bias", "[1, 3, 3, 4]", "[1, 2, 3, 4]")),
    "bias axes": (lambda: call(bias=np.ones((3, 4)), encoding="additive"), ("bias", "[3, 4]", "four axes")),
    "bias infinite": (
        lambda: call(bias=np.full((1, 1, 1, 1), -np.inf), encoding="additive"),
        ("bias[0, 0, 0, 0]", "-inf", "finite"),
    ),
    "bias in bool": (lambda: call(bias=np.ones((1, 1, 1, 1))), ("encoding", "'bool'", "additive")),
    "no head map": (lambda: call(key=np.ones((1, 3, 4, 2))), ("2 query heads over 3 key heads", "head_map")),
    "short head map": (lambda: call(head_map=(0,)), ("head_map", "1 entries", "2 query heads")),
    "head map outside": (lambda: call(head_map=(0, 1)), ("head_map[1]", "1", "0..0")),
    "head map negative": (lambda: call(head_map=(-1, 0)), ("head_map[0]", "-1", "0..0")),
    "head map of floats": (lambda: call(head_map=(0, 0.0)), ("head_map[1]", "0.0", "key head")),
    "mask type": (lambda: call(visible=np.ones((1, 1, 1, 1))), ("visibility.mask", "boolean")),
    "mask shape": (lambda: call(visible=MASK[:, :, :2]), ("visibility.mask", "[1, 2, 2, 4]", "[1, 2, 3, 4]")),
    "mask axes": (lambda: call(visible=MASK[0, 0]), ("visibility.mask", "[3, 4]", "four axes")),
    "query_valid type": (
        lambda: call().but(visibility=Visibility(MASK, query_valid=np.ones((1, 3)))),
        ("visibility.query_valid", "boolean"),
    ),
    "query_valid shape": (
        lambda: call().but(visibility=Visibility(MASK, query_valid=np.ones((1, 4), bool))),
        ("visibility.query_valid", "[1, 4]", "[1, 3]"),
    ),
    "empty_rows": (
        lambda: call().but(visibility=Visibility(MASK, empty_rows="maybe")),
        ("visibility.empty_rows", "'maybe'", "reject"),
    ),
    "an empty row is rejected": (
        lambda: call().but(visibility=Visibility(np.zeros((1, 1, 1, 1), bool), empty_rows="reject")),
        ("batch 0, head 0, query 0", "no key", "'reject'"),
    ),
    "scale": (lambda: call(scale=float("nan")), ("scale =", "nan", "finite float")),
    "scale type": (lambda: call().but(scale=2), ("scale =", "2", "float")),
    "dropout p": (lambda: call(dropout=Dropout(1.0, Z)), ("dropout.probability", "1.0", "p < 1")),
    "dropout NaN p": (lambda: call(dropout=Dropout(float("nan"), Z)), ("dropout.probability", "nan")),
    "dropout sign": (lambda: call(dropout=Dropout(0.5, -Z)), ("dropout.multiplier", "not negative")),
    "dropout inf": (lambda: call(dropout=Dropout(0.5, Z * np.inf)), ("dropout.multiplier", "finite")),
    "dropout type": (lambda: call(dropout=Dropout(0.5, Z > 0)), ("dropout.multiplier", "float64")),
    "dropout shape": (
        lambda: call(dropout=Dropout(0.5, np.ones((1, 1, 2, 4)))),
        ("dropout.multiplier", "[1, 1, 2, 4]", "[1, 2, 3, 4]"),
    ),
    "dropout return": (
        lambda: call(dropout=Dropout(0.5, Z, returned_weights="all")),
        ("dropout.returned_weights", "'all'", "none"),
    ),
    "encoding": (lambda: call(encoding="float"), ("encoding", "'float'", "bool")),
    "encoding none hides": (
        lambda: call(encoding="none", visible=~MASK),
        ("encoding = 'none'", "hides"),
    ),
    "encoding none with bias": (lambda: call(encoding="none", bias=Z), ("encoding = 'none'", "bias")),
    "causal flag": (lambda: call(encoding="causal_flag"), ("causal_flag", "upper-left", "differs")),
    "causal flag with bias": (
        lambda: call(encoding="causal_flag", visible=upper_left(3, 4)[None, None], bias=Z),
        ("causal_flag", "bias"),
    ),
    "layout": (lambda: call(layout=Layout(key="fortran")), ("layout.key", "'fortran'", "contiguous")),
    "mask layout": (lambda: call(layout=Layout(mask="offset")), ("layout.mask", "'offset'", "expanded")),
    "unknown dtype": (lambda: call(dtype="half"), ("'half'", "float16")),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_broken_field_is_named_with_its_value_and_the_mend(name: str) -> None:
    make, parts = BAD[name]
    with pytest.raises(ValueError) as caught:  # noqa: PT011, the parts are asserted below
        make()
    for part in parts:
        assert part in str(caught.value)


def test_a_call_cannot_be_changed() -> None:
    made = call(bias=np.ones((1, 1, 1, 4)), encoding="additive", visible=MASK, dropout=Dropout(0.5, Z.copy()))
    with pytest.raises(FrozenInstanceError):
        made.dtype = "float64"  # type: ignore[misc]
    for array in (made.query, made.key, made.value, made.bias, made.grad_output, made.visibility.mask):
        assert array is not None
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    with pytest.raises(CallError):
        made.but(dtype="float16", query=np.full((1, 2, 3, 2), 1e5))


def test_make_call_copies_what_it_is_given() -> None:
    query = np.ones((1, 1, 1, 1))
    made = make_call(query, np.ones((1, 1, 1, 1)), np.ones((1, 1, 1, 1)))
    query[...] = 2.0
    assert made.query.item() == 1.0


def test_effective_visibility_scale_and_multiplier() -> None:
    valid = np.array([[True, False, True]])
    made = call().but(visibility=Visibility(np.ones((1, 1, 1, 4), bool), query_valid=valid))
    assert made.visible.shape == made.score_shape == (1, 2, 3, 4)
    assert made.visible[0, :, 1].sum() == 0
    assert made.visible[0, :, ::2].all()
    assert made.scale_value == 1 / np.sqrt(2)
    assert made.but(scale=-0.25).scale_value == -0.25
    assert make_call(np.ones((1, 1, 1, 0)), np.ones((1, 1, 1, 0)), np.ones((1, 1, 1, 1))).scale_value == 1.0
    assert made.multiplier is None
    assert made.but(dropout=Dropout(0.5, Z, training=False)).multiplier is None
    assert made.but(dropout=Dropout(0.5, 2 * Z)).multiplier.shape == (1, 2, 3, 4)
