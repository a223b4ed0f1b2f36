"""Whole attention: pyspec's exact domain equals what Lean computed, number for number, with no tolerance anywhere.

Forward, derivative and backward, with sinks, slopes, grouped heads and packed rows. If the Python mirror left out or
moved any operator, some rational here would differ.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from attnspec.pyspec import alibi, attention, dual, heads, sink
from attnspec.pyspec.attention import Inputs, Params
from attnspec.pyspec.calls.call import Dropout, make_call
from attnspec.pyspec.evaluate import evaluate, lift_call
from tests.agreement.exact import (
    EXACT,
    INPUTS,
    build,
    inputs,
    lifted,
    parametrize,
    params,
    same,
    same_gradient,
    shapes,
)
from tests.agreement.vector_files import mask, numbers


@parametrize("attention", "softcap")
def test_attention(case: dict[str, Any]) -> None:
    shape = shapes(case["sizes"])
    p, x = params(case, shape["pair"]), inputs(case["inputs"], shape)
    same(attention.scores(EXACT, p, x), case["scores"])
    same(attention.weights(EXACT, p, x), case["weights"])
    same(attention.forward(EXACT, p, x), case["output"])


@parametrize("attention", "softcap")
def test_jvp(case: dict[str, Any]) -> None:
    shape = shapes(case["sizes"])
    p, x, dx = params(case, shape["pair"]), inputs(case["inputs"], shape), inputs(case["tangent"], shape)
    same(attention.jvp(EXACT, p, x, dx), case["output_tangent"])


@parametrize("attention", "softcap")
def test_backward(case: dict[str, Any]) -> None:
    shape = shapes(case["sizes"])
    p, x = params(case, shape["pair"]), inputs(case["inputs"], shape)
    same_gradient(attention.backward(EXACT, p, x, lifted(case["output_gradient"], shape["output"])), case["gradient"])


@parametrize("attention", "softcap")
def test_dual_numbers(case: dict[str, Any]) -> None:
    """Forward over dual numbers gives the output and the tangent that Lean has."""
    shape = shapes(case["sizes"])
    p, x, dx = params(case, shape["pair"]), inputs(case["inputs"], shape), inputs(case["tangent"], shape)
    over = dual.DualDomain(EXACT)
    constant = over.pair(p.multiplier, EXACT.map(lambda z: z * 0, p.multiplier))
    pairs = Inputs(**{name: over.pair(getattr(x, name), getattr(dx, name)) for name in INPUTS})
    re, eps = over.parts(attention.forward(over, Params(p.scale, p.visible, constant, p.softcap), pairs))
    same(re, case["output"])
    same(eps, case["output_tangent"])


@parametrize("attention", "softcap", built=True)
def test_mask_of_a_call(case: dict[str, Any]) -> None:
    queries, keys = case["sizes"]["nQ"], case["sizes"]["nK"]
    assert build(case["visibility"], queries, keys).tolist() == mask(case["visible"], (queries, keys)).tolist()


@parametrize("sink")
def test_sink(case: dict[str, Any]) -> None:
    """A call with a sink is the extension that Lean has, and its tensors are those of the extension, cut."""
    shape = shapes(case["sizes"])
    keys = case["sizes"]["nK"]

    def plain(nested: Any, name: str) -> np.ndarray:
        return numbers(nested, shape[name]).astype(np.float64)

    multiplier = plain(case["multiplier"], "pair")
    call = make_call(
        *(plain(case["inputs"][name], name) for name in ("query", "key", "value")),
        visible=mask(case["visible"], shape["pair"]),
        scale=float(Fraction(case["scale"])),
        bias=plain(case["inputs"]["bias"], "bias"),
        encoding="additive",
        dropout=None if (multiplier == 1.0).all() else Dropout(0.5, multiplier),
        grad_output=plain(case["output_gradient"], "output"),
        sink=np.array([float(Fraction(case["logit"]))]),
    )
    p, x = lift_call(EXACT, sink.extended(call))
    assert p.visible[0, 0].tolist() == case["extended"]["visible"]
    ones = EXACT.lift(np.ones(p.visible.shape))
    same(ones if p.multiplier is None else p.multiplier, case["extended"]["multiplier"])
    same_gradient(x, case["extended"]["inputs"])
    same(attention.weights(EXACT, p, x), case["weights"])
    found, gradient = evaluate(EXACT, call, with_lse=False), case["gradient"]
    same(found["output"], case["output"])
    same(found["grad_query"], gradient["query"])
    same(found["grad_key"], gradient["key"][:keys])
    same(found["grad_value"], gradient["value"][:keys])
    same(found["grad_bias"], [row[:keys] for row in gradient["bias"]])
    same(found["grad_sink"], [str(sum(Fraction(row[keys]) for row in gradient["bias"]))])


@parametrize("alibi")
def test_alibi(case: dict[str, Any]) -> None:
    """A slope's bias joins the bias; of its tangent it makes the scores' tangent; its gradient is Lean's."""
    shape = shapes(case["sizes"])
    away = alibi.distances(case["sizes"]["nQ"], case["sizes"]["nK"])
    assert away.tolist() == np.array(case["distances"], dtype=float).reshape(away.shape).tolist()

    def sloped(record: dict[str, Any], slope: str) -> Inputs[np.ndarray]:
        x = inputs(record, shape)
        bias = alibi.slope_bias(EXACT, lifted([slope], (1, 1, 1, 1)), away)
        return replace(x, bias=EXACT.add("biased", x.bias, bias))

    p, grad = params(case, shape["pair"]), lifted(case["output_gradient"], shape["output"])
    x, dx = sloped(case["inputs"], case["slope"]), sloped(case["tangent"], case["slope_tangent"])
    same(x.bias, case["sloped_bias"])
    same(attention.scores(EXACT, p, x), case["scores"])
    same(attention.weights(EXACT, p, x), case["weights"])
    same(attention.forward(EXACT, p, x), case["output"])
    same(attention.jvp(EXACT, p, x, dx), case["output_tangent"])
    gradient = attention.backward(EXACT, p, x, grad)
    same_gradient(gradient, case["gradient"])
    same(alibi.slope_gradient(EXACT, gradient.bias, away, batch=1), [case["slope_gradient"]])


@parametrize("heads")
def test_heads(case: dict[str, Any]) -> None:
    query_heads, key_heads, head_map = case["query_heads"], case["key_heads"], tuple(case["head_map"])
    shape = shapes(case["sizes"], query_heads, key_heads)
    q, k = case["sizes"]["nQ"], case["sizes"]["nK"]
    visible = np.broadcast_to(mask(case["visible"], (1, 1, q, k)), shape["pair"])
    p = Params(float(Fraction(case["scale"])), visible, None)

    def wide(record: dict[str, Any]) -> Inputs[np.ndarray]:
        x = inputs(record, shape)
        return Inputs(x.query, heads.repeat(EXACT, head_map, x.key), heads.repeat(EXACT, head_map, x.value), x.bias)

    x, dx = wide(case["inputs"]), wide(case["tangent"])
    same(attention.forward(EXACT, p, x), case["output"])
    same(attention.jvp(EXACT, p, x, dx), case["output_tangent"])
    g = attention.backward(EXACT, p, x, lifted(case["output_gradient"], shape["output"]))

    def shared(name: str, grad: np.ndarray) -> np.ndarray:
        zero = EXACT.lift_fractions(numbers(["0"] * int(np.prod(shape[name][2:])), (1, 1, *shape[name][2:])))
        return heads.group_sum(EXACT, f"grad_{name}", head_map, key_heads, grad, zero)

    same_gradient(Inputs(g.query, shared("key", g.key), shared("value", g.value), g.bias), case["gradient"])


@parametrize("packing")
def test_packing(case: dict[str, Any]) -> None:
    """The packed problem, and each of the two on its own, against the rows that Lean has for them."""
    nq, nk = case["query_lengths"], case["key_lengths"]
    sizes = {"nQ": sum(nq), "nK": sum(nk), "d": 1, "dv": 2}
    shape = shapes(sizes)
    p, x = params(case, shape["pair"]), inputs(case["inputs"], shape)
    grad = lifted(case["output_gradient"], shape["output"])
    same(attention.forward(EXACT, p, x), case["output"])
    same_gradient(attention.backward(EXACT, p, x, grad), case["gradient"])
    for rows, columns in ((slice(0, nq[0]), slice(0, nk[0])), (slice(nq[0], None), slice(nk[0], None))):
        at = (slice(None), slice(None), rows, columns)
        multiplier = p.multiplier
        assert multiplier is not None
        assert x.bias is not None
        alone_p = Params(p.scale, p.visible[at], multiplier[at])
        alone = Inputs(x.query[:, :, rows], x.key[:, :, columns], x.value[:, :, columns], x.bias[at])
        same(attention.forward(EXACT, alone_p, alone), case["output"][rows])
        g = attention.backward(EXACT, alone_p, alone, grad[:, :, rows])
        same(g.query, case["gradient"]["query"][rows])
        same(g.key, case["gradient"]["key"][columns])
        same(g.value, case["gradient"]["value"][columns])
        same(g.bias, [row[columns] for row in case["gradient"]["bias"][rows]])
