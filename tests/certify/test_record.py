"""Trials as documents: what is written comes back bit for bit, and what is broken gives one error and runs nothing."""

from __future__ import annotations

import subprocess
import sys
from copy import deepcopy
from typing import Any

import msgspec
import numpy as np
import pytest

from attnspec.certify.trials import Trial, TrialError, trial_from_data, trial_to_data
from attnspec.certify.trials.contracts import InputsUnchanged, NotANumber, Refused, ReturnedAs, SameBits
from attnspec.certify.trials.expectations import Between, Moved, Total, Values
from attnspec.certify.trials.trial import EXPECTATIONS, recorded
from attnspec.pyspec import CallError
from attnspec.pyspec.calls.fingerprint import fingerprint
from tests.certify.fakes import Finds, call_of

CALL = call_of(3)
ONE = np.ones((1, 1, 1, 1))
FULL = Trial(
    CALL,
    raw={"key": np.array([np.nan, -0.0, np.inf, 5e-324]).reshape(1, 1, 4, 1), "value": ONE.astype(np.float16)},
    against=CALL.but(value=2.0 * CALL.value),
    views={"grad_key": ((2, np.array([2, 0, 1])),)},
    tensors=("output", "grad_key"),
    where={"output": np.array([[[[True]]]])},
    expect=(
        Values("output", ONE, ONE > 0, "overflow"),
        Between("output", -np.inf * ONE, np.inf * ONE),
        Total("a sum", (("output", None), ("lse", np.array([0.1]))), None, np.ones(()), np.zeros(()), 2),
        Moved("output", ONE, 0.0 * ONE, again=True),
        NotANumber("output", ONE > 0),
        SameBits(3),
        InputsUnchanged(),
        ReturnedAs(),
        Refused("nothing fits"),
    ),
    other=CALL.but(query=0.0 * CALL.query),
    claimed_as=CALL,
    bounds_of=CALL.but(dtype="float32"),
    tanh_error=0.1,
)


def through_json(trial: Trial) -> Trial:
    return trial_from_data(msgspec.json.decode(msgspec.json.encode(trial_to_data(trial))))


def same(one: Any, other: Any) -> bool:
    """The same types, numbers and arrays, bit for bit."""
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if type(one) is not type(other):
        return False
    if type(one).__name__ == "AttentionCall":
        return fingerprint(one) == fingerprint(other) and one.origin == other.origin
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(same, one, other))
    if hasattr(one, "__dataclass_fields__"):
        return all(same(getattr(one, n), getattr(other, n)) for n in one.__dataclass_fields__)
    return repr(one) == repr(other)


def test_every_field_comes_back_bit_for_bit() -> None:
    assert same(through_json(FULL), FULL)
    assert trial_to_data(through_json(FULL)) == trial_to_data(FULL)


@pytest.mark.parametrize("tensors", [None, (), ("lse",)])
def test_what_says_nothing_is_left_out_and_no_tensors_are_not_all_of_them(tensors: tuple[str, ...] | None) -> None:
    trial = Trial(CALL, tensors=tensors)
    assert set(trial_to_data(trial)) == {"call"} | ({"tensors"} if tensors is not None else set())
    assert same(through_json(trial), trial)


def test_every_registered_expectation_of_the_engine_is_among_them() -> None:
    ours = {name for name, kind in EXPECTATIONS.items() if kind.__module__.startswith("attnspec.certify.trials.")}
    assert ours == {type(e).__name__ for e in FULL.expect}


def changed(**fields: Any) -> dict[str, Any]:
    return {**trial_to_data(FULL), **fields}


def expecting(index: int, **fields: Any) -> dict[str, Any]:
    """The document with one of its expectations changed; a field that is None is taken out."""
    data = deepcopy(trial_to_data(FULL))
    data["expect"][index].update(fields)
    data["expect"][index] = {k: v for k, v in data["expect"][index].items() if v is not None}
    return data


ARRAY = trial_to_data(FULL)["where"]["map"]["output"]
BROKEN = {
    "no object": ([], "a trial is an object with a call"),
    "no call": ({"tensors": []}, "a trial is an object with a call"),
    "another field": (changed(code="import os"), "unknown field 'code' of a trial"),
    "a call that is none": (changed(call={"call": {"format": "attnspec.call/2"}}), "visibility.polarity = None"),
    "a number for a call": (changed(other=3), "other of a trial: expected a call"),
    "nothing for a call": (changed(call=None), "call of a trial: expected a call"),
    "a list of raw arrays": (changed(raw=[ARRAY]), "raw of a trial: Expected `object`, got `array`"),
    "a number for an array": (changed(where={"map": {"output": 1}}), "where of a trial: Expected `numpy.ndarray`"),
    "a view without an axis": (changed(views={"map": {"lse": [[ARRAY]]}}), "views of a trial: Expected `array`"),
    "one name of tensors": (changed(tensors="output"), "tensors of a trial: Expected `array | null`, got `str`"),
    "a text for a number": (changed(tanh_error="big"), "tanh_error of a trial: Expected `float`, got `str`"),
    "another float": (changed(tanh_error={"float": "__import__('os')"}), "expected nan, inf or -inf"),
    "a map that is none": (changed(where={"map": 7}), "where of a trial: 7: expected an object"),
    "an array of objects": (changed(where={"map": {"output": {**ARRAY, "dtype": "object"}}}), "of dtype 'object'"),
    "another shape": (changed(where={"map": {"output": {**ARRAY, "shape": [2]}}}), "with 1 entries: expected 2"),
    "no shape": (changed(where={"map": {"output": {**ARRAY, "shape": [-1]}}}), "shape [-1]"),
    "no base64": (changed(where={"map": {"output": {**ARRAY, "array": "?"}}}), "an array of shape [1, 1, 1, 1]"),
    "bytes that end early": (changed(where={"map": {"output": {**ARRAY, "array": "AQE="}}}), "with 2 entries"),
    "no list of expectations": (changed(expect={"map": {}}), "expect of a trial: expected a list of expectations"),
    "a number for an expectation": (changed(expect=[1]), "expect of a trial: expected a list of expectations"),
    "an unknown expectation": (expecting(0, expect="Popen"), "unknown expectation 'Popen': expected one of Between, "),
    "a list for its name": (expecting(0, expect=[]), "unknown expectation '[]'"),
    "a field too many": (expecting(0, args=["ls"]), "unknown field 'args' of expectation Values"),
    "a field too few": (expecting(0, exact=None), "expectation Values: Object missing required field `exact`"),
    "a number for its tensor": (
        expecting(0, tensor=1),
        "Values: Expected `str`, got `int` - at `$.tensor`",
    ),
    "a choice that is none": (expecting(0, allowed="all"), "expectation Values: Invalid enum value 'all'"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_corrupted_document_is_refused_and_says_why(name: str) -> None:
    document, words = BROKEN[name]
    with pytest.raises((TrialError, CallError)) as told:
        trial_from_data(msgspec.json.decode(msgspec.json.encode(document)))
    assert words in str(told.value)
    assert "\n" not in str(told.value)


def test_nothing_of_a_document_is_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins

    def forbidden(*given: Any, **more: Any) -> None:
        raise AssertionError("code was run")

    for name in ("eval", "exec", "compile"):
        monkeypatch.setattr(builtins, name, forbidden)
    assert same(through_json(FULL), FULL)
    for document, _ in BROKEN.values():
        with pytest.raises((TrialError, CallError)):
            trial_from_data(document)


def test_what_cannot_be_read_back_is_not_written() -> None:
    for trial, words in (
        (Trial(CALL, raw={"key": np.array(["a"])}), "an array of dtype str"),
        (Trial(CALL, raw={"key": ONE.astype(np.int32)}), "an array of dtype int32: expected one of float64"),
        (Trial(CALL, expect=(Finds(()),)), "register its class with attnspec.certify.trials.recorded"),
    ):
        with pytest.raises(TypeError, match=words):
            trial_to_data(trial)


def test_a_name_stands_for_one_class() -> None:
    with pytest.raises(ValueError, match="an expectation 'Values' is registered already"):
        recorded(type("Values", (), {"__module__": "elsewhere"}))
    assert EXPECTATIONS["Values"] is Values
    assert recorded(Values) is Values


def test_a_record_is_read_in_a_process_that_has_loaded_no_property() -> None:
    code = (
        "import sys, msgspec\n"
        "from attnspec.certify.trials.record import trial_from_data\n"
        "print([type(e).__name__ for e in trial_from_data(msgspec.json.decode(sys.stdin.buffer.read())).expect])\n"
    )
    document = {**trial_to_data(Trial(CALL)), "expect": [{"expect": "WithoutRounding"}]}
    given = msgspec.json.encode(document).decode()
    done = subprocess.run([sys.executable, "-c", code], input=given, capture_output=True, text=True, check=True)
    assert done.stdout == "['WithoutRounding']\n"
