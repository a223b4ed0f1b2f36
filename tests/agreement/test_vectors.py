"""pyspec's exact domain equals what Lean computed, number for number: no tolerance anywhere.

If the Python mirror left out or moved any operator, some rational here would differ.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from flint import fmpq

from attnspec.pyspec import alibi, attention, dropout, dual, heads, online, scale, sink, visibility
from attnspec.pyspec.attention import Inputs, Params
from attnspec.pyspec.calls.call import Dropout, make_call
from attnspec.pyspec.domains.exact import ExactDomain, pade_exp, pade_tanh
from attnspec.pyspec.evaluate import evaluate, lift_call
from tests.agreement.vector_files import cases, mask, numbers
from tools.lean import vectors

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


def test_vectors_belong_to_these_sources() -> None:
    assert vectors.stale(vectors.ROOT) == []


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


@parametrize("visibility")
def test_visibility(case: dict[str, Any]) -> None:
    queries, keys = case["nQ"], case["nK"]
    assert build(case["visibility"], queries, keys).tolist() == mask(case["visible"], (queries, keys)).tolist()


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
