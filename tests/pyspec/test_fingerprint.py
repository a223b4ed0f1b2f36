"""The feature table holds everything of a call: what differs in it differs in the fingerprint and survives JSON."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnspec.pyspec import AttentionCall, CallError, Dropout, call_from_json, call_to_json, evaluate, make_call
from attnspec.pyspec.calls.call import Backend, OwnDropout
from attnspec.pyspec.calls.features import FEATURES, PARTS, Part, stored
from attnspec.pyspec.calls.fields import CallFields
from attnspec.pyspec.calls.fingerprint import fingerprint
from attnspec.pyspec.calls.score import FAMILY_KINDS, Additive, Bilinear, Cosine
from attnspec.pyspec.domains import Float64Domain
from attnspec.strategies import Features, call_at
from attnspec.strategies.features import features_of

EVERYTHING = Features(softcap=True, sink=True, slopes=True)
CALLS = [call_at(7, i, "smoke", EVERYTHING) for i in range(60)]


def full(**changes: Any) -> AttentionCall:
    """Everything that dot products may have at once; every axis has a length of its own, but for the batch."""
    rng = np.random.default_rng(0)
    made = make_call(
        rng.integers(-3, 4, (1, 4, 2, 5)),
        rng.integers(-3, 4, (1, 2, 3, 5)),
        rng.integers(-3, 4, (1, 2, 3, 6)),
        visible=np.array([True, True, False]).reshape(1, 1, 1, 3),
        bias=rng.integers(-3, 4, (1, 4, 1, 3)).astype(float),
        encoding="additive",
        scale=0.25,
        softcap=5.0,
        sink=np.arange(4.0),
        slopes=0.5 ** np.arange(1.0, 5.0),
        dropout=Dropout(0.5, 2.0 * rng.integers(0, 2, (1, 1, 2, 3))),
        grad_output=np.ones((1, 4, 2, 6)),
        backend=Backend("cuda"),
        origin={"seed": "1"},
    )
    return made.but(**{"visibility": replace(made.visibility, query_valid=np.array([[True, False]])), **changes})


def of_family(name: str) -> AttentionCall:
    """A call of that family with all of its parameters, and dropout that the subject draws."""
    rng = np.random.default_rng(1)
    parameters = [rng.integers(-3, 4, s).astype(float) for s in ((1, 7, 5), (4, 7, 5), (1, 7), (4, 7))]
    family = {
        "bilinear": Bilinear(rng.integers(-3, 4, (4, 5, 5)).astype(float)),
        "additive": Additive(*parameters),
        "cosine": Cosine("clamp", 0.5),
    }[name]
    plain = full(softcap=None, sink=None, slopes=None, dropout=None)
    return plain.but(score=family, own_dropout=OwnDropout(0.5, 3))


WHOLE = (full(), full(bias=None, encoding="bool"), *map(of_family, ("bilinear", "additive", "cosine")))
# Parts whose change alone may be no call: others would have to follow.
TIED = ("encoding", "visibility.empty_rows", "score.zero_norm")


def same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
    return bool(type(a) is type(b) and a == b)


def assert_survives(call: AttentionCall) -> None:
    """The call read back from its JSON says the same in every part, and has the same fingerprint."""
    again = call_from_json(call_to_json(call))
    for part in PARTS:
        assert same(part.of(again), part.of(call)), part.path
    assert fingerprint(again) == fingerprint(call)


def changed(part: Part, value: Any, data: st.DataObject) -> Any:
    """Another value of the part."""
    if part.is_array:
        at = data.draw(st.integers(0, value.size - 1), label="entry")
        new = value.copy()
        new.flat[at] = not value.flat[at] if part.kind == "bits" else value.flat[at] + 1.0
        return new
    if part.kind == "name":
        others = [n for n in part.options or ("cuda", "flash", "yes") if n != value]
        return data.draw(st.sampled_from(others), label="name")
    if part.kind == "heads":
        return tuple(data.draw(st.permutations(value), label="heads"))
    if part.kind == "labels":
        return {**value, "index": "3"}
    if part.kind == "switch":
        return not value
    return value + 1 if part.kind == "whole" else value / 2.0 + 0.125


@pytest.mark.parametrize("part", PARTS, ids=lambda p: p.path)
@given(data=st.data())
@settings(max_examples=20, deadline=None)
def test_a_change_of_any_part_is_another_call_and_survives_json(part: Part, data: st.DataObject) -> None:
    having = [c for c in WHOLE if any(part == p for p, _ in stored(c))]
    call = data.draw(st.sampled_from(having), label="call")
    if part.path == "score.name":  # a family is another record, and has no other name
        other = next(c for c in WHOLE if c.score.name not in (call.score.name, "dot"))
    else:
        try:
            other = call.with_parts({part.path: changed(part, part.of(call), data)})
        except CallError:
            assert part.path in TIED
            return
    is_label = next(f.is_label for f in FEATURES if part in f.parts)
    differs = not same(part.of(other), part.of(call))
    assert (fingerprint(other) != fingerprint(call)) == (differs and not is_label)
    assert_survives(other)


def test_some_example_has_every_part() -> None:
    assert {part.path for call in WHOLE for part, _ in stored(call)} == {part.path for part in PARTS}


@pytest.mark.parametrize("feature", [f for f in FEATURES if f.optional], ids=lambda f: f.name)
def test_a_call_without_a_feature_is_another_call(feature: Any) -> None:
    call = next(c for c in WHOLE if feature.of(c))
    without = call.with_parts({feature.optional: feature.absent})
    assert not feature.of(without)
    assert fingerprint(without) != fingerprint(call)
    assert_survives(without)


def names(record: Any) -> set[str]:
    return {field.name for field in fields(record)}


def test_every_field_of_a_call_stands_in_the_table() -> None:
    assert {part.root for part in PARTS} == names(CallFields)
    leaves = {p.path.partition(".")[2] for p in PARTS if p.root == "score"} - {"name"}
    assert leaves == {name for kind in FAMILY_KINDS.values() for name in names(kind)}
    for root in ("visibility", "dropout", "own_dropout", "layout", "backend"):
        record = next(getattr(c, root) for c in WHOLE if getattr(c, root) is not None)
        assert {p.path.partition(".")[2] for p in PARTS if p.root == root} == names(record)


def test_score_parameters_make_another_call_and_survive() -> None:
    """Metrics I and diag(4, -9): same tensors, other scores."""
    rng = np.random.default_rng(0)
    query, key = rng.integers(-2, 3, (1, 1, 2, 2)), rng.integers(-2, 3, (1, 1, 3, 2))
    plain = make_call(query, key, rng.integers(-2, 3, (1, 1, 3, 2)), scale=1.0)
    one, other = (plain.but(score=Bilinear(np.diag(d)[None])) for d in ([1.0, 1.0], [4.0, -9.0]))
    assert fingerprint(one) != fingerprint(other)
    for call in (one, other):
        again = call_from_json(call_to_json(call))
        assert np.array_equal(*(evaluate(Float64Domain(), c)["output"] for c in (call, again)))


@pytest.mark.parametrize("call", CALLS, ids=range(len(CALLS)))
def test_drawn_calls_survive_json(call: AttentionCall) -> None:
    assert_survives(call)


def test_drawn_calls_differ_and_have_every_feature_that_may_be_drawn() -> None:
    assert len({fingerprint(call) for call in CALLS}) == len(CALLS)
    drawn = {f.name for f in FEATURES for call in CALLS if f.of(call)}
    assert drawn >= {f.name for f in FEATURES if f.optional} - {"score", "own_dropout"}


def test_labels_do_not_matter() -> None:
    call = CALLS[0]
    told = call.but(backend=Backend("cuda", "flash", "no"), origin={"seed": "9"})
    assert fingerprint(told) == fingerprint(call)


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


def test_an_older_document_says_what_to_do() -> None:
    with pytest.raises(CallError, match="written by an older version: run the certify command again"):
        call_from_json('{"format": "attnspec.call/1"}')


def test_what_may_be_drawn_are_claims_of_the_table() -> None:
    assert names(Features) <= {f.claim for f in FEATURES}
    allowed = features_of(Features(softcap=True, gradients=False), "float16")
    assert (allowed.dtypes, allowed.softcap, allowed.gradients) == (("float16",), True, False)
