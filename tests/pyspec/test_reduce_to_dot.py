"""Score families as dot products: exact where they can be, refused or rounded where not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attnspec.pyspec import AttentionCall
from attnspec.pyspec.attention import Inputs, Params, backward, forward
from attnspec.pyspec.calls.errors import FamilyError
from attnspec.pyspec.calls.score import Cosine
from attnspec.pyspec.domains import ExactDomain
from attnspec.pyspec.evaluate import evaluate
from attnspec.pyspec.handover.reduce_to_dot import reduce_to_dot
from tests.pyspec.family_calls import cosine_call, drawn, integers


def test_a_bilinear_call_reduces_exactly_and_keeps_its_scale_as_a_number() -> None:
    call = integers("bilinear").but(scale=None)
    found = reduce_to_dot(call)
    assert found.exact
    assert found.rounded == 0
    assert found.call.scale == call.scale_value
    assert type(found.call) is AttentionCall
    ours = evaluate(ExactDomain(), call, with_lse=False)
    reduced = evaluate(ExactDomain(), found.call, with_lse=False)
    assert all((ours[n] == reduced[n]).all() for n in ("output", "grad_key", "grad_value"))


def test_an_inexact_reduction_is_refused_and_rounded_only_when_asked() -> None:
    call = drawn(1, "bilinear")
    with pytest.raises(FamilyError, match=r"bilinear: the reduced query\[0, 0, 0, 0\] = .* not exactly a value of flo"):
        reduce_to_dot(call)
    rounded = reduce_to_dot(call, rounding="nearest")
    assert not rounded.exact
    assert rounded.rounded > 0


def test_cosine_reduces_where_lengths_are_powers_of_two_and_is_refused_elsewhere() -> None:
    call = cosine_call([[2.0, 0.0], [0.0, -4.0]], [[1.0, 1.0, 1.0, 1.0][:2], [0.0, 8.0]], Cosine())
    with pytest.raises(FamilyError, match=r"the length of key\[0, 0, 0\] is irrational"):
        reduce_to_dot(call)
    near = reduce_to_dot(call, rounding="nearest")
    assert not near.exact
    assert np.abs(near.call.key[0, 0, 0] - 0.5**0.5).max() < 1e-16
    exact = reduce_to_dot(cosine_call([[1.0, 1.0, 1.0, 1.0]], [[0.0, 8.0, 0.0, 0.0]], Cosine()))
    assert exact.exact
    assert exact.call.query[0, 0, 0].tolist() == [0.5, 0.5, 0.5, 0.5]
    with pytest.raises(FamilyError, match="not exactly a value of float64"):
        reduce_to_dot(cosine_call([[3.0, 4.0]], [[1.0, 0.0]], Cosine()))


def test_the_additive_family_is_never_handed_to_a_dot_product_kernel() -> None:
    for rounding in ("refuse", "nearest"):
        with pytest.raises(FamilyError, match="'additive' is no dot product"):
            reduce_to_dot(drawn(0, "additive"), rounding=rounding)


def test_dot_reduces_to_itself() -> None:
    call = drawn(0, "dot")
    found = reduce_to_dot(call)
    assert found.exact
    assert found.call.query is call.query
    with pytest.raises(ValueError, match="expected 'refuse' or 'nearest'"):
        reduce_to_dot(call, rounding="up")


def test_the_spec_of_one_head_is_reached_through_its_reduction() -> None:
    """The same numbers through attnspec.pyspec.attention directly."""
    found = reduce_to_dot(integers("bilinear")).call
    dom = ExactDomain()
    key, value = (dom.lift(x[:, list(found.head_map)]) for x in (found.key, found.value))
    inputs = Inputs(dom.lift(found.query), key, value)
    params: Params[Any] = Params(found.scale_value, found.visible)
    assert (forward(dom, params, inputs) == evaluate(dom, found, with_lse=False)["output"]).all()
    assert found.grad_output is not None
    assert backward(dom, params, inputs, dom.lift(found.grad_output)).query.shape == found.query.shape
