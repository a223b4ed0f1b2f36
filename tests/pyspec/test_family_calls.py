"""A call of a score family: what it refuses, and what additive and bilinear scores are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attnspec.pyspec.calls.errors import FamilyError
from attnspec.pyspec.calls.score import Additive, Bilinear, Cosine, Dot, Family
from attnspec.pyspec.domains import ExactDomain
from attnspec.pyspec.evaluate import evaluate, lift_call
from tests.pyspec.family_calls import drawn, scores


def test_parameters_are_checked_by_name() -> None:
    call = drawn(0, "dot").but(score=Dot())
    with pytest.raises(
        FamilyError, match=r"bilinear.metric has shape \[3, 3, 3\]: expected \[1, 3, 3\] or \[2, 3, 3\]"
    ):
        call.but(score=Bilinear(np.zeros((3, 3, 3))))
    with pytest.raises(FamilyError, match=r"bilinear.metric\[0, 1, 2\] = .*nan.*: expected a finite value of float32"):
        call.but(score=Bilinear(np.array([[[0, 0, 0], [0, 0, np.nan], [0, 0, 0]]], dtype=float)))
    with pytest.raises(FamilyError, match=r"additive.offset has shape \[1, 4\]"):
        call.but(score=Additive(np.zeros((1, 2, 3)), np.zeros((1, 2, 3)), np.zeros((1, 4)), np.zeros((1, 2))))


@pytest.mark.parametrize(
    "family", [Cosine("zero"), Additive(*(np.zeros(s) for s in ((1, 2, 3), (1, 2, 3), (1, 2), (1, 2))))]
)
def test_the_default_scale_belongs_to_dot_products(family: Family) -> None:
    call = drawn(0, "dot").but(score=Dot())
    with pytest.raises(FamilyError, match=r"scale = None for the \w+ family"):
        call.but(scale=None, score=family)


@pytest.mark.parametrize(("name", "value"), [("softcap", 5.0), ("sink", np.zeros(2))])
def test_modifiers_of_dot_products_are_refused(name: str, value: Any) -> None:
    call = drawn(0, "dot").but(score=Dot())
    with pytest.raises(FamilyError, match=f"{name} of a bilinear call: only dot products carry one"):
        call.but(**{name: value}).but(score=Bilinear(np.zeros((1, 3, 3))))


def test_a_domain_without_roots_says_so() -> None:
    with pytest.raises(NotImplementedError, match="the exact domain has no square root: no cosine scores"):
        evaluate(ExactDomain(), drawn(0, "cosine"), with_lse=False)


def test_an_additive_score_without_tanh_forgets_the_query() -> None:
    call = drawn(9, "additive", bias=False)
    assert isinstance(call.score, Additive)
    u = scores(call)
    linear = (
        call.query @ np.swapaxes(call.score.query_map, -1, -2) @ call.score.vector[:, :, None]
        + np.swapaxes(
            call.key[:, [0, 0]] @ np.swapaxes(call.score.key_map, -1, -2) @ call.score.vector[:, :, None], -1, -2
        )
    )[0, 0]
    # Without the tanh all rows order the keys alike: their differences do not depend on the query.
    assert np.ptp(linear - linear[:, :1], axis=0).max() < 1e-12
    assert np.ptp(u - u[:, :1], axis=0).max() > 1e-2
    assert np.abs(u).max() <= np.abs(call.score.vector).sum(axis=-1).max()


def test_a_bilinear_score_associates_exactly() -> None:
    call = drawn(11, "bilinear")
    assert isinstance(call.score, Bilinear)
    dom = ExactDomain()
    params, x = lift_call(dom, call)
    left = params.score.pair(dom, x)[0]
    right = dom.mul("dot", x.query, np.swapaxes(dom.mul_t("dot", x.key, x.parameters["metric"]), -1, -2))
    assert (left == right).all()
