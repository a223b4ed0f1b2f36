"""Formats are what IEEE 754 and bfloat16 say, and bit patterns lose nothing."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from attnspec.pyspec.calls.formats import FORMATS, from_hex, get_format, is_representable, round_to, to_hex

each_format = pytest.mark.parametrize("name", FORMATS)


@pytest.mark.parametrize(
    ("name", "precision", "largest", "tiny"),
    [
        ("float64", 53, (2 - 2.0**-52) * 2.0**1023, 2.0**-1022),
        ("float32", 24, (2 - 2.0**-23) * 2.0**127, 2.0**-126),
        ("bfloat16", 8, (2 - 2.0**-7) * 2.0**127, 2.0**-126),
        ("float16", 11, 65504.0, 2.0**-24),  # conversions to float16 keep subnormal numbers on all hardware
    ],
)
def test_parameters(name: str, precision: int, largest: float, tiny: float) -> None:
    fmt = get_format(name)
    assert (fmt.precision, fmt.largest, fmt.tiny) == (precision, largest, tiny)
    assert fmt.unit_roundoff == 2.0**-precision


def test_unknown_format() -> None:
    with pytest.raises(ValueError, match="unknown dtype 'float8': expected one of float64, float32, bfloat16, float16"):
        get_format("float8")


@each_format
def test_unit_roundoff_bounds_one_rounding(name: str) -> None:
    """Reached by the number half way above one, and passed by none."""
    fmt = get_format(name)
    if name != "float64":
        half_way = 1 + fmt.unit_roundoff
        assert round_to(name, np.array(half_way)) == 1.0  # ties to even
        above = np.array(half_way + 2.0**-23 if name != "float32" else math.nextafter(half_way, 2))
        assert round_to(name, above) == 1 + 2 * fmt.unit_roundoff
    rng = np.random.default_rng(0)
    x = rng.uniform(1, 2, size=10_000) * 2.0 ** rng.integers(-14 if name == "float16" else -120, 15, size=10_000)
    assert (np.abs(round_to(name, x) - x) <= fmt.unit_roundoff * np.abs(x)).all()
    below = x * fmt.tiny
    assert (np.abs(round_to(name, below) - below) <= fmt.unit_roundoff * np.abs(below) + fmt.tiny).all()


@each_format
def test_rounding_is_to_the_nearest(name: str) -> None:
    """Against the neighbours one bit pattern up and down."""
    fmt = get_format(name)
    x = np.random.default_rng(1).standard_normal(2000)
    rounded = round_to(name, x)
    bits = np.abs(rounded).astype(fmt.dtype).view(fmt.bits)
    for neighbour in (bits + 1, bits - 1):
        other = np.copysign(neighbour.astype(fmt.bits).view(fmt.dtype).astype(np.float64), rounded)
        assert (np.abs(rounded - x) <= np.abs(other - x)).all()


@each_format
def test_overflow_and_exceptional_numbers(name: str) -> None:
    fmt = get_format(name)
    assert round_to(name, np.array(fmt.largest)) == fmt.largest
    assert np.isnan(round_to(name, np.array(np.nan)))
    assert round_to(name, np.array(-np.inf)) == -np.inf
    if name != "float64":
        assert round_to(name, np.array(fmt.largest * (1 + fmt.unit_roundoff))) == np.inf


@each_format
def test_is_representable(name: str) -> None:
    fmt = get_format(name)
    values = np.array([0.0, -0.0, 1.0, fmt.largest, fmt.tiny, np.inf, np.nan])
    assert is_representable(name, values).all()
    if name != "float64":
        assert not is_representable(name, np.array([0.1, 1 + fmt.unit_roundoff, 2.0**-200])).any()


@each_format
def test_hex_round_trip(name: str) -> None:
    """Every bit pattern, or a sample of them with all the special ones."""
    fmt = get_format(name)
    width = 8 * fmt.bits.itemsize
    if width == 16:
        words = np.arange(2**16, dtype=np.uint16)
    else:
        rng = np.random.default_rng(2)
        words = np.concatenate([rng.integers(0, 2**width, 5000, dtype=fmt.bits), np.arange(50, dtype=fmt.bits)])
    with np.errstate(invalid="ignore"):  # signalling NaN among the patterns
        values = words.view(fmt.dtype).astype(np.float64)
    words, values = words[~np.isnan(values)], values[~np.isnan(values)]
    text = to_hex(name, values)
    assert text == [f"{int(w):0{width // 4}x}" for w in words]
    assert from_hex(name, text, values.shape).tobytes() == values.tobytes()


def test_known_patterns() -> None:
    assert to_hex("bfloat16", np.array([1.0, -0.0])) == ["3f80", "8000"]
    assert to_hex("float16", np.array([65504.0, 2.0**-24])) == ["7bff", "0001"]
    assert to_hex("float32", np.array([1.0])) == ["3f800000"]
    assert to_hex("float64", np.array([[0.1]])) == ["3fb999999999999a"]
    assert np.array(0.1).astype(ml_dtypes.bfloat16).astype(np.float64) == from_hex("bfloat16", ["3dcd"], (1,))[0]


@pytest.mark.parametrize(
    ("words", "shape", "message"),
    [
        (["3f8"], (1,), "bad bfloat16 bit pattern '3f8': expected 4 lower-case hex digits"),
        (["3F80"], (1,), "bad bfloat16 bit pattern '3F80'"),
        (["0x3f"], (1,), "bad bfloat16 bit pattern '0x3f'"),
        ([" 3f8"], (1,), "bad bfloat16 bit pattern"),
        (["3f80"], (2,), "1 bit patterns for shape .2.: expected 2"),
        ([], (1, 1), "0 bit patterns"),
    ],
)
def test_bad_words(words: list[str], shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_hex("bfloat16", words, shape)


def test_bfloat16_is_rounded_once() -> None:
    # Through float32 this would be a tie first, and then go down.
    assert round_to("bfloat16", np.array([1.0 + 2.0**-8 + 2.0**-40])).item() == 1.0 + 2.0**-7
