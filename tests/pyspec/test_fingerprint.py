"""The fingerprint of a call: a replay draws the same random numbers, another call others."""

from __future__ import annotations

import numpy as np
import pytest

from attnspec.pyspec import AttentionCall, call_from_json, call_to_json
from attnspec.pyspec.calls.fingerprint import fingerprint
from attnspec.strategies import Features, call_at

CALLS = [call_at(7, i, "smoke", Features(sink=True, softcap=True)) for i in range(60)]


@pytest.mark.parametrize("call", CALLS, ids=range(len(CALLS)))
def test_reading_a_written_call_keeps_its_fingerprint(call: AttentionCall) -> None:
    assert fingerprint(call_from_json(call_to_json(call))) == fingerprint(call)


def test_calls_that_differ_have_other_fingerprints() -> None:
    assert len({fingerprint(call) for call in CALLS}) == len(CALLS)


def test_a_zero_of_the_other_sign_is_another_call() -> None:
    call = next(c for c in CALLS if c.query.size)
    zero, minus = np.zeros_like(call.query), np.full_like(call.query, -0.0)
    assert fingerprint(call.but(query=zero)) != fingerprint(call.but(query=minus))


def test_numbers_of_numpy_count_as_the_floats_they_are() -> None:
    plain, odd = (CALLS[0].but(scale=x) for x in (0.5, np.float64(0.5)))
    assert fingerprint(plain) == fingerprint(odd)


def test_what_is_told_differently_differs() -> None:
    call = CALLS[0]
    whole = np.ones((1, 1, 1, 1), dtype=bool)
    plain = call.but(visibility=type(call.visibility)(whole), bias=None, encoding="bool")
    assert fingerprint(plain) != fingerprint(plain.but(encoding="none"))
