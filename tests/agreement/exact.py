"""The cases of spec/vectors as what pyspec takes, and equality number for number."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from flint import fmpq

from attnspec.pyspec import visibility
from attnspec.pyspec.attention import Inputs, Params
from attnspec.pyspec.domains.exact import ExactDomain
from tests.agreement.vector_files import cases, mask, numbers

EXACT = ExactDomain()
INPUTS = ("query", "key", "value", "bias")


def rational(x: str) -> fmpq:
    return EXACT.number(Fraction(x))


def lifted(nested: Any, shape: tuple[int, ...]) -> np.ndarray:
    return EXACT.lift_fractions(numbers(nested, shape))


def same(got: np.ndarray, expected: Any) -> None:
    """Equality of every number, with the first difference named."""
    fractions = EXACT.lower(np.asarray(got, dtype=object))
    wanted = numbers(expected, fractions.shape)
    for where in np.ndindex(fractions.shape):
        assert fractions[where] == wanted[where], f"{where}: pyspec {fractions[where]}, Lean {wanted[where]}"


def shapes(sizes: dict[str, int], query_heads: int = 1, key_heads: int = 1) -> dict[str, tuple[int, ...]]:
    q, k, d, dv = (sizes[name] for name in ("nQ", "nK", "d", "dv"))
    return {
        "query": (1, query_heads, q, d),
        "key": (1, key_heads, k, d),
        "value": (1, key_heads, k, dv),
        "bias": (1, query_heads, q, k),
        "pair": (1, query_heads, q, k),
        "output": (1, query_heads, q, dv),
    }


def inputs(record: dict[str, Any], shape: dict[str, tuple[int, ...]]) -> Inputs[np.ndarray]:
    return Inputs(**{name: lifted(record[name], shape[name]) for name in INPUTS})


def params(case: dict[str, Any], shape: tuple[int, ...]) -> Params[np.ndarray]:
    multiplier = lifted(case["multiplier"], shape) if "multiplier" in case else None
    softcap = float(Fraction(case["softcap"])) if "softcap" in case else None
    return Params(float(Fraction(case["scale"])), mask(case["visible"], shape), multiplier, softcap)


def same_gradient(got: Inputs[np.ndarray], expected: dict[str, Any]) -> None:
    for name in INPUTS:
        same(getattr(got, name), expected[name])


def build(record: dict[str, Any], queries: int, keys: int) -> np.ndarray:
    """The mask that pyspec makes of a constructor and its arguments."""
    kind = record["kind"]
    if kind == "full":
        return visibility.full(queries, keys)
    if kind == "empty":
        return visibility.empty(queries, keys)
    if kind == "causal":
        return visibility.causal(queries, keys, record["offset"])
    if kind == "upperLeft":
        return visibility.upper_left(queries, keys)
    if kind == "lowerRight":
        return visibility.lower_right(queries, keys)
    if kind == "window":
        return visibility.window(queries, keys, record["left"], record["right"], record["offset"])
    if kind == "prefix":
        return visibility.prefix(queries, keys, record["length"], record["offset"])
    if kind == "keyPadding":
        return visibility.key_padding(queries, np.array(record["valid"], dtype=bool))
    if kind == "segments":
        return visibility.segments(np.array(record["query_segment"], int), np.array(record["key_segment"], int))
    if kind == "compose":
        return visibility.compose(*(build(part, queries, keys) for part in record["parts"]))
    raise AssertionError(f"a constructor that this test does not know: {kind}")


def parametrize(*names: str, built: bool = False) -> pytest.MarkDecorator:
    """One test a case; with `built`, only the cases whose mask follows a rule."""
    name = "-".join(names)
    loaded = [c for n in names for c in cases(n) if not built or c["visibility"]["kind"] != "table"]
    return pytest.mark.parametrize("case", loaded, ids=[f"{i}-{c.get('note', name)}" for i, c in enumerate(loaded)])
