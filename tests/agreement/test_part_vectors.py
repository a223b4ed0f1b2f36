"""Masks, merging, dropout, scale and arithmetic: pyspec equals what Lean computed, number for number."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from flint import fmpq

from attnspec.pyspec import dropout, dual, heads, online, scale
from attnspec.pyspec.domains.exact import pade_exp, pade_tanh
from tests.agreement.exact import (
    EXACT,
    build,
    lifted,
    parametrize,
    rational,
    same,
)
from tests.agreement.vector_files import cases, mask
from tools.lean import vectors


def test_vectors_belong_to_these_sources() -> None:
    assert vectors.stale(vectors.ROOT) == []


@parametrize("visibility")
def test_visibility(case: dict[str, Any]) -> None:
    queries, keys = case["nQ"], case["nK"]
    assert build(case["visibility"], queries, keys).tolist() == mask(case["visible"], (queries, keys)).tolist()


def test_equal_groups() -> None:
    """The equal groups among the cases are those of `grouped`."""
    checked = 0
    for case in cases("heads"):
        if case["note"].split()[0] in ("one", "two") or case["note"] == "a head of its own each":
            assert heads.grouped(case["query_heads"], case["key_heads"]) == tuple(case["head_map"])
            checked += 1
    assert checked == 4


def same_acc(got: online.Acc, expected: dict[str, Any]) -> None:
    same(np.array([got.shift, got.mass], dtype=object), [expected["shift"], expected["mass"]])
    same(got.out, expected["out"])


@parametrize("online")
def test_online(case: dict[str, Any]) -> None:
    keys = len(case["scores"])
    scores = lifted(case["scores"], (keys,))
    value = lifted(case["value"], (keys, len(case["output"])))
    parts = [
        online.block(EXACT, rational(b["shift"]), mask(b["visible"], (keys,)), scores, value) for b in case["blocks"]
    ]
    for part, record in zip(parts, case["blocks"], strict=True):
        same_acc(part, record["acc"])
    total = parts[0]
    for part in parts[1:]:
        total = online.merge(EXACT, part.shift, total, part)
    same_acc(total, case["merged"])
    same(online.finish(EXACT, total), case["output"])
    if len(parts) > 1:
        pair = online.merge(EXACT, rational(case["merged_pair_shift"]), parts[0], parts[1])
        same_acc(pair, case["merged_pair"])


@parametrize("dropout")
def test_dropout(case: dict[str, Any]) -> None:
    got = dropout.multiplier(np.array(case["keep"], dtype=bool), float(Fraction(case["probability"])))
    same(EXACT.lift(got), case["multiplier"])


@parametrize("scale")
def test_scale(case: dict[str, Any]) -> None:
    left, right = rational(case["left"]), rational(case["right"])
    query = lifted(case["query"], (2, 2))
    key = lifted(case["key"], (3, 2))
    same(scale.on_scores(left * right, query, key), case["on_scores"])
    same(scale.on_query(left * right, query, key), case["on_query"])
    same(scale.on_key(left * right, query, key), case["on_key"])
    same(scale.split(left, right, query, key), case["split"])


@parametrize("dual")
def test_dual(case: dict[str, Any]) -> None:
    x, y = (dual.Dual(rational(case[n]["re"]), rational(case[n]["eps"])) for n in ("x", "y"))

    def equal(got: dual.Dual, name: str) -> None:
        same(np.array([got.re, got.eps], dtype=object), [case[name]["re"], case[name]["eps"]])

    equal(x + y, "add")
    equal(x - y, "sub")
    equal(x * y, "mul")
    equal(dual.DualDomain(EXACT).exp(x), "exp")
    if x.re != 0:
        equal(dual.Dual.of(fmpq(1)) / x, "inv")
    else:
        # Lean's inverse of zero is zero; pyspec never divides by it (an empty row is told apart before).
        assert case["inv"] == {"re": "0", "eps": "0"}


@parametrize("exp")
def test_exp(case: dict[str, Any]) -> None:
    assert pade_exp(Fraction(case["x"])) == Fraction(case["exp"])
    assert pade_tanh(Fraction(case["x"])) == Fraction(case["tanh"])
