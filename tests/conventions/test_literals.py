"""Literals: every array comes out of its text bit for bit, in torch and in numpy."""

from __future__ import annotations

import zlib

import ml_dtypes
import numpy as np
import pytest

from attnspec.certify.conventions.execute import bound
from attnspec.certify.conventions.literals import array_literal, number_literal
from attnspec.certify.conventions.program import Leaf, make_leaf, number, raw_leaf
from attnspec.pyspec.calls.formats import FORMATS, from_hex

torch = pytest.importorskip("torch")

SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.1, 999999.0, 1e6, -1e6, 3.5]
SHAPES = [(), (0,), (2, 0, 3), (1, 1, 1, 1), (3,), (2, 3, 4, 5), (7, 11, 13), (1, 2, 17, 40)]


def bits(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.untyped_storage())


def holds(leaf: Leaf) -> None:
    """The literal in torch, the tensor of a run, and the literal in numpy hold the same bytes."""
    text = leaf.literal()
    made = eval(text, {"torch": torch, "zlib": zlib})
    run = bound(leaf)
    assert made.dtype == run.dtype
    assert made.shape == run.shape == leaf.array.shape
    assert bits(made) == bits(run) == leaf.array.tobytes(), text[:200]
    assert made.is_contiguous()
    assert run.data_ptr() % 64 == made.data_ptr() % 64
    copied = eval(array_literal(leaf.array, "np"), {"np": np, "zlib": zlib, "ml_dtypes": ml_dtypes})
    assert copied.dtype == leaf.array.dtype
    assert copied.shape == leaf.array.shape
    assert copied.tobytes() == leaf.array.tobytes()


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_arrays_of_every_format(dtype: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    holds(raw_leaf(rng.standard_normal(shape), dtype))
    holds(make_leaf(rng.integers(-3, 4, shape).astype(np.float64), dtype))
    for x in (0.0, -0.0, np.nan, -np.inf):
        holds(raw_leaf(np.full(shape, x), dtype))


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("repeated", [1, 100])
def test_special_numbers(dtype: str, repeated: int) -> None:
    form = FORMATS[dtype]
    smallest = float(from_hex(dtype, [f"{1:0{2 * form.bits.itemsize}x}"], ())[()])
    values = [*SPECIAL, smallest, -smallest, 3 * smallest, form.tiny, form.largest, -form.largest, -np.nan]
    holds(raw_leaf(np.array(values * repeated), dtype))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_booleans(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    holds(make_leaf(np.asarray(rng.random(shape) < 0.5), "bool"))
    holds(make_leaf(np.ones(shape, dtype=bool), "bool"))


def test_zeros_of_both_signs_are_not_one_constant() -> None:
    array = np.zeros(20)
    array[7] = -0.0
    assert "full" not in array_literal(array, "torch")
    holds(make_leaf(array, "float32"))


def test_a_long_array_of_few_numbers_has_a_short_literal() -> None:
    array = np.zeros((1, 1, 131_073, 4))
    array[0, 0, 77] = 1.0
    leaf = make_leaf(array, "float32")
    holds(leaf)
    assert len(leaf.literal()) < 10_000


def test_rounding_of_raw_values() -> None:
    assert raw_leaf(np.array([1.0 + 2.0**-30, 1e300]), "float16").literal() == (
        "torch.tensor([1, torch.inf], dtype=torch.float16)"
    )


def test_numbers_read_as_they_are_written() -> None:
    assert [number_literal(x, "torch") for x in (1.0, -0.0, 0.5, 1e6, -np.inf)] == [
        "1",
        "-0.0",
        "0.5",
        "1000000.0",
        "-torch.inf",
    ]
    seen = {"output": torch.tensor([[0.1, torch.nan]], dtype=torch.bfloat16)}
    assert eval(number("seen['output']", (0, 0)), {"seen": seen}) == 0.10009765625
    assert np.isnan(eval(number("seen['output']", (0, 1)), {"seen": seen}))
    assert number("x", ()) == "float(x)"
