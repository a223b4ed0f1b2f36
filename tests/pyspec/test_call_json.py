"""A call survives JSON bit for bit, and a broken document gives an error and runs no code."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from attnspec.pyspec import (
    AttentionCall,
    CallError,
    Dropout,
    Layout,
    Visibility,
    call_from_json,
    call_to_json,
    make_call,
)
from attnspec.pyspec.calls.call import Backend
from attnspec.pyspec.calls.formats import FORMATS, get_format, round_to
from tests.pyspec.draws import draw
from tests.pyspec.small_call import Z, call


def same_bits(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return a is b
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def assert_equal(a: AttentionCall, b: AttentionCall) -> None:
    for name in ("query", "key", "value", "bias", "grad_output"):
        assert same_bits(getattr(a, name), getattr(b, name)), name
    assert same_bits(a.visibility.mask, b.visibility.mask)
    assert same_bits(a.visibility.query_valid, b.visibility.query_valid)
    assert a.visibility.empty_rows == b.visibility.empty_rows
    assert (a.dropout is None) == (b.dropout is None)
    if a.dropout is not None and b.dropout is not None:
        assert same_bits(a.dropout.multiplier, b.dropout.multiplier)
        assert replace(a.dropout, multiplier=Z).__dict__.keys() == b.dropout.__dict__.keys()
        for name in ("probability", "training", "returned_weights"):
            assert getattr(a.dropout, name) == getattr(b.dropout, name)
    for name in ("dtype", "head_map", "scale", "encoding", "layout", "backend", "origin"):
        assert getattr(a, name) == getattr(b, name), name


@pytest.mark.parametrize("dtype", FORMATS)
def test_json_keeps_every_bit(dtype: str) -> None:
    fmt = get_format(dtype)
    smallest = float(np.finfo(np.float64).smallest_subnormal) if dtype == "float64" else 2.0**-133
    numbers = [0.0, -0.0, 1.0, -1.0, fmt.largest, -fmt.largest, fmt.tiny, -fmt.tiny / 2, smallest, 1 / 3]
    array = round_to(dtype, np.array(numbers)).reshape(1, 1, 5, 2)
    made = make_call(array, array[:, :, ::-1], array, dtype=dtype, grad_output=array)
    assert_equal(call_from_json(call_to_json(made)), made)
    assert np.signbit(call_from_json(call_to_json(made)).query[0, 0, 0, 1])
    for seed in range(20):
        drawn = draw(np.random.default_rng(seed), dtype)
        assert_equal(call_from_json(call_to_json(drawn)), drawn)
        assert call_to_json(call_from_json(call_to_json(drawn).encode())) == call_to_json(drawn)


def test_json_keeps_every_field() -> None:
    made = call(
        visible=np.ones((1, 1, 3, 1), bool), bias=np.ones((1, 2, 1, 4)), encoding="additive", scale=0.1,
        dropout=Dropout(0.1, np.full((1, 1, 1, 4), 1 / 0.9), training=False, returned_weights="after_dropout"),
        layout=Layout("heads_last", "padded", "offset", "expanded"),
        backend=Backend("cuda", "flash", "no"), origin={"seed": "3", "index": "17"},
    ).but(
        visibility=Visibility(np.ones((1, 1, 3, 1), bool), np.array([[True, False, True]]), "zero"),
    )  # fmt: skip
    assert_equal(call_from_json(call_to_json(made)), made)
    bare = call(grad_output=None)
    assert_equal(call_from_json(call_to_json(bare)), bare)


@pytest.mark.parametrize("axis", range(4))
def test_json_keeps_empty_axes(axis: int) -> None:
    shape = [1, 1, 2, 3]
    shape[axis] = 0
    made = make_call(np.zeros(shape), np.zeros((shape[0], shape[1], 0, shape[3])), np.zeros((shape[0], shape[1], 0, 0)))
    assert_equal(call_from_json(call_to_json(made)), made)


def changed(path: str, value: Any) -> str:
    """The JSON of a small call with one field replaced (or removed, by ...)."""
    made = call(dropout=Dropout(0.5, Z))
    made = made.but(visibility=Visibility(np.ones((1, 1, 1, 4), bool), np.ones((1, 3), bool)))
    document = json.loads(call_to_json(made))
    *parents, last = path.split(".")
    at = document
    for name in parents:
        at = at[name]
    if value is ...:
        del at[last]
    else:
        at[last] = value
    return json.dumps(document)


ONES = " ".join(["3f800000"] * 12)


WRAPS, FINER = [2**32, 2**32, 1, 1], " ".join(["3fb999999999999a"] * 12)


BROKEN = {
    "empty text": "",
    "no JSON": "not json",
    "no object": "[1, 2]",
    "bytes that are no text": b"\xff\xfe\x00",
    "a pickle": b"\x80\x04\x95\x1c\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94.",
    "deep nesting": "[" * 100_000,
    "unknown field": changed("__reduce__", "os.system"),
    "unknown field inside": changed("query.loader", "import os"),
    "no query": changed("query", ...),
    "no words": changed("query.words", ...),
    "format": changed("format", "attnspec.call/3"),
    "format type": changed("format", 1),
    "polarity": changed("visibility.polarity", "true_means_hidden"),
    "shape of text": changed("query.shape", ["1", "2", "3", "2"]),
    "shape of floats": changed("query.shape", [1.5, 2, 3, 2]),
    "negative shape": changed("query.shape", [-1, -2, 3, 2]),
    "other shape": changed("query.shape", [1, 2, 2, 2]),
    "three axes": changed("query.shape", [1, 6, 2]),
    "huge shape": changed("query.shape", [2**31, 2**31, 2**31, 2]),
    "shape whose product wraps to 0": changed("query", {"shape": WRAPS, "format": "float32", "words": ""}),
    "empty but huge": changed("query", {"shape": [0, 2**62, 2**62, 1], "format": "float32", "words": ""}),
    "shape past 64 bits": changed("query.shape", [2**70, 1, 1, 1]),
    "mask whose product wraps to 0": changed("visibility.mask", {"shape": WRAPS, "digits": ""}),
    "huge mask": changed("visibility.mask", {"shape": [2**31, 2**31, 1, 1], "digits": "1"}),
    "empty but huge mask": changed("visibility.mask", {"shape": [0, 2**62, 2**62, 1], "digits": ""}),
    "mask past 64 bits": changed("visibility.mask", {"shape": [2**70, 1, 1, 1], "digits": "1"}),
    "negative mask": changed("visibility.mask", {"shape": [-1, -1, 1, 4], "digits": "1111"}),
    "mask digits": changed("visibility.mask.digits", "11a1"),
    "mask digits of another script": changed("visibility.mask.digits", "111١"),
    "short mask": changed("visibility.mask.digits", "111"),
    "query_valid axes": changed("visibility.query_valid", {"shape": [3], "digits": "111"}),
    "hex": changed("query.words", ONES.replace("3f800000", "xyzw1234")),
    "hex with a prefix": changed("query.words", ONES.replace("3f800000", "0x3f8000")),
    "upper case": changed("query.words", ONES.replace("f", "F")),
    "short words": changed("query.words", ONES.replace("3f800000", "3f80")),
    "too few words": changed("query.words", ONES[9:]),
    "too many words": changed("query.words", ONES + " 3f800000"),
    "code for words": changed("query.words", "__import__('os').system('true')"),
    "NaN bits": changed("query.words", ONES.replace("3f800000", "7fc00000", 1)),
    "signalling NaN bits": changed("query.words", ONES.replace("3f800000", "7f800001", 1)),
    "inf bits": changed("query.words", ONES.replace("3f800000", "ff800000", 1)),
    "unknown number format": changed("query.format", "float8"),
    "finer number format": changed("query", {"shape": [1, 2, 3, 2], "format": "float64", "words": FINER}),
    "dtype": changed("dtype", "int8"),
    "head map": changed("head_map", [0, 7]),
    "head map of text": changed("head_map", ["0", "0"]),
    "huge head": changed("head_map", [0, 2**70]),
    "scale": changed("scale", "one half"),
    "scale inf": changed("scale", "inf"),
    "scale NaN": changed("scale", "nan"),
    "scale overflows": changed("scale", "0x1p+5000"),
    "scale number": changed("scale", 0.5),
    "dropout p": changed("dropout.probability", "0x1p+0"),
    "dropout NaN": changed("dropout.multiplier.words", "7ff8000000000000"),
    "layout field": changed("layout.weights", "contiguous"),
    "layout value": changed("layout.query", "fortran"),
    "layout type": changed("layout", {"query": ["contiguous"]}),
    "backend field": changed("backend.command", "rm"),
    "origin type": changed("origin", {"seed": {"$ref": "x"}}),
    "origin no object": changed("origin", "seed"),
    "null key": changed("key", None),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_broken_json_gives_a_call_error(name: str) -> None:
    with pytest.raises(CallError):
        call_from_json(BROKEN[name])


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("query.shape", [1, 2, 2, 2]),
        ("visibility.mask", {"shape": [1, 1, 1, 4], "digits": "11"}),
        ("dropout.multiplier.words", "zz"),
        ("scale", "fast"),
        ("format", "attnspec.call/3"),
        ("layout.weights", "contiguous"),
    ],
)
def test_the_error_names_the_field(path: str, value: Any) -> None:
    field = path.split(".")[0]
    with pytest.raises(CallError, match=field):
        call_from_json(changed(path, value))


def test_reading_a_call_runs_no_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither eval, exec, import of a named module nor unpickling is reached from a document."""
    import builtins
    import os
    import pickle

    text = call_to_json(call(origin={"__class__": "os.system", "cmd": "__import__('os').system('true')"}))
    call_from_json(text)  # modules that the reader itself needs are in by now

    def forbidden(*_: Any, **__: Any) -> Any:
        raise AssertionError("reading a call ran code")

    for module, name in ((builtins, "eval"), (builtins, "exec"), (os, "system"), (pickle, "loads"), (pickle, "load")):
        monkeypatch.setattr(module, name, forbidden)
    assert call_from_json(text).origin["__class__"] == "os.system"
    for document in BROKEN.values():
        with pytest.raises((ValueError, OverflowError, RuntimeWarning)):
            call_from_json(document)
