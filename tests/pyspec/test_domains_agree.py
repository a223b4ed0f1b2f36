"""Six readings of one spec on the same calls: they agree as closely as each of them claims to."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import sympy
from flint import arb

from attnspec.pyspec import AttentionCall, Dropout, Visibility, attention, evaluate, evaluate_jvp, make_call
from attnspec.pyspec.attention import Inputs, Params
from attnspec.pyspec.domains import BallDomain, BigDomain, ExactDomain, Float64Domain, SymbolicDomain, pade_exp
from attnspec.pyspec.domains.ball import precision
from attnspec.pyspec.dual import DualDomain
from attnspec.pyspec.evaluate import lift_call
from attnspec.pyspec.oracle.bound import BoundDomain
from attnspec.pyspec.oracle.ledger import NUMPY_FLOAT64
from tests.pyspec.draws import draw

EXACT = ExactDomain()
NAMES = ("query", "key", "value")


def integers(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.integers(-2, 3, size=shape).astype(np.float64)


def rational_call(rng: np.random.Generator, sizes: tuple[int, ...], head_map: tuple[int, ...], **fields: Any) -> Any:
    """A call of small integers; sizes are batch, key heads, queries, keys, width, value width."""
    b, hkv, q, k, d, dv = sizes
    h = len(head_map)
    return make_call(
        integers(rng, (b, h, q, d)), integers(rng, (b, hkv, k, d)), integers(rng, (b, hkv, k, dv)),
        head_map=head_map, grad_output=integers(rng, (b, h, q, dv)),
        **{"visible": rng.random((b, h, q, k)) < 0.7, "scale": 0.5, **fields},
    )  # fmt: skip


def calls() -> list[Any]:
    """Grouped heads, unused and shuffled key heads, biases broadcast along each axis, empty rows, scales, dropout."""
    rng = np.random.default_rng(0)
    made = []
    maps = [((0,), 1), ((0, 0), 1), ((0, 0, 1, 1), 2), ((2, 0, 2), 4), ((1, 0), 2)]
    for n, (head_map, hkv) in enumerate(maps):
        made.append(rational_call(rng, (1 + n % 2, hkv, 3, 4, 2, 3), head_map))
    shape = (2, 2, 3, 4)
    for kept in itertools.product((False, True), repeat=4):
        bias = integers(rng, tuple(n if keep else 1 for n, keep in zip(shape, kept, strict=True)))
        made.append(rational_call(rng, (2, 1, 3, 4, 2, 1), (0, 0), bias=bias, encoding="additive"))
    for scale in (0.0, -1.0, 3.0, None):
        made.append(rational_call(rng, (1, 1, 2, 3, 4, 2), (0,), scale=scale))
    multiplier = (rng.random((1, 2, 3, 4)) < 0.5) * 2.0
    made.append(rational_call(rng, (1, 1, 3, 4, 2, 3), (0, 0), dropout=Dropout(0.5, multiplier)))
    made.append(rational_call(rng, (1, 1, 3, 4, 2, 3), (0, 0), dropout=Dropout(0.5, multiplier, training=False)))
    invalid = Visibility(np.ones((1, 1, 3, 4), dtype=bool), query_valid=np.array([[True, False, True]]))
    made.append(rational_call(rng, (1, 1, 3, 4, 2, 3), (0,)).but(visibility=invalid))
    made.append(rational_call(rng, (1, 1, 2, 3, 1, 1), (0,), visible=np.zeros((1, 1, 1, 1), dtype=bool)))
    for axis in range(6):
        sizes = [1, 1, 2, 3, 2, 2]
        sizes[axis] = 0
        made.append(rational_call(rng, tuple(sizes), () if axis == 1 else (0,)))
    return made


CALLS = calls()
each_call = pytest.mark.parametrize("call", CALLS, ids=range(len(CALLS)))


# An attention in Fractions, written from the formulas alone: loops over entries, no domain, no matrices.


def direct(call: AttentionCall) -> dict[str, np.ndarray]:
    """Output and gradients of the call with the rational exp, entry by entry."""
    a = call.axes
    alpha = Fraction(call.scale_value)
    number = np.vectorize(Fraction, otypes=[object])
    Q, K, V, G = (
        number(x) if x.size else x.astype(object) for x in (call.query, call.key, call.value, call.grad_output)
    )
    B = np.broadcast_to(0.0 if call.bias is None else call.bias, call.score_shape)
    Z = np.ones(call.score_shape) if call.multiplier is None else call.multiplier
    O, gQ = np.full(G.shape, Fraction(0)), np.full(Q.shape, Fraction(0))
    gK, gV = np.full(K.shape, Fraction(0)), np.full(V.shape, Fraction(0))
    gB = np.full((1, 1, 1, 1) if call.bias is None else call.bias.shape, Fraction(0))
    for b, h, i in np.ndindex(call.score_shape[:3]):
        g = call.head_map[h]
        seen = [j for j in range(a.keys) if call.visible[b, h, i, j]]
        s = {
            j: alpha * sum(Q[b, h, i, d] * K[b, g, j, d] for d in range(a.key_width)) + Fraction(B[b, h, i, j])
            for j in seen
        }
        n = {j: pade_exp(s[j]) for j in seen}
        P = {j: n[j] / sum(n.values()) for j in seen}
        z = {j: Fraction(Z[b, h, i, j]) for j in seen}
        for e in range(a.value_width):
            O[b, h, i, e] = sum((P[j] * z[j] * V[b, g, j, e] for j in seen), Fraction(0))
            for j in seen:
                gV[b, g, j, e] += P[j] * z[j] * G[b, h, i, e]
        Gp = {j: z[j] * sum((G[b, h, i, e] * V[b, g, j, e] for e in range(a.value_width)), Fraction(0)) for j in seen}
        D = sum((P[j] * Gp[j] for j in seen), Fraction(0))
        for j in seen:
            Gs = P[j] * (Gp[j] - D)
            gB[tuple(x if size > 1 else 0 for x, size in zip((b, h, i, j), gB.shape, strict=True))] += Gs
            for d in range(a.key_width):
                gQ[b, h, i, d] += alpha * Gs * K[b, g, j, d]
                gK[b, g, j, d] += alpha * Gs * Q[b, h, i, d]
    found = {"output": O, "grad_query": gQ, "grad_key": gK, "grad_value": gV}
    return found if call.bias is None else {**found, "grad_bias": gB}


@each_call
def test_exact_equals_an_independent_attention(call: AttentionCall) -> None:
    found = evaluate(EXACT, call, with_lse=False)
    wanted = direct(call)
    assert set(found) == set(wanted)
    for name, tensor in wanted.items():
        assert found[name].shape == tensor.shape, name
        assert (EXACT.lower(found[name]) == tensor).all(), name


def enclosures_hold(call: AttentionCall) -> None:
    """Balls of 113 bits contain mpmath at 400 up to its own rounding; float64 with its bound contains mpmath."""
    with precision(113):
        balls = evaluate(BallDomain(), call)
    big = evaluate(BigDomain(400), call)
    domain = BoundDomain(NUMPY_FLOAT64)
    bounded = evaluate(domain, call)
    plain = evaluate(Float64Domain(), call)
    assert set(balls) == set(big) == set(bounded) == set(plain)
    inputs = (call.query, call.key, call.value, call.grad_output)
    largest = math.prod(max(1.0, float(np.abs(x).max(initial=0.0))) for x in inputs if x is not None)
    for name, ball in balls.items():
        value, error = domain.lower(bounded[name])
        lo, hi = BallDomain().lower(ball)
        assert ball.shape == big[name].shape == value.shape == plain[name].shape, name
        with precision(500):
            for i in np.ndindex(ball.shape):
                if np.isneginf(value[i]):
                    assert lo[i] == hi[i] == plain[name][i] == float(big[name][i]) == -math.inf, f"{name}{i}"
                    continue
                number = as_ball(big[name][i])
                rounding = arb(0, 1) * arb(largest) * arb(2) ** -350
                assert ball[i].overlaps(number + rounding), f"{name}{i}"
                if np.isfinite(error[i]):
                    # Both float64 readings are of one formula, and the bound holds for any order of its sums.
                    assert abs(number - arb(float(value[i]))) <= arb(float(error[i])), f"{name}{i}"
                    assert abs(number - arb(float(plain[name][i]))) <= arb(float(error[i])), f"{name}{i}"


def as_ball(x: Any) -> arb:
    """The mpmath number, exactly."""
    mantissa, exponent = x.man_exp
    return arb(int(mantissa) * (-1 if x < 0 else 1)) * arb(2) ** int(exponent)


@each_call
def test_enclosures_on_made_calls(call: AttentionCall) -> None:
    enclosures_hold(call)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_enclosures_on_drawn_calls(dtype: str) -> None:
    for seed in range(12):
        rng = np.random.default_rng([seed, *dtype.encode()])
        enclosures_hold(draw(rng, dtype, most=5, profiles=("normal", "tiny", "cancel", "ones")))
        # Where one weight takes all, mpmath's gradients cancel to nothing at any fixed precision; the output does not.
        large = draw(rng, dtype, most=5, profiles=("large", "spread", "onehot"))
        enclosures_hold(large.but(grad_output=None))


def test_long_rows_stay_enclosed() -> None:
    rng = np.random.default_rng(9)
    visible = rng.random((1, 1, 3, 200)) < 0.5
    call = make_call(
        30 * rng.standard_normal((1, 1, 3, 4)), rng.standard_normal((1, 1, 200, 4)),
        rng.standard_normal((1, 1, 200, 2)), dtype="float64", visible=visible,
        grad_output=rng.standard_normal((1, 1, 3, 2)),
    )  # fmt: skip
    enclosures_hold(call)


# The transpose and the derivative, exactly.


def lifted(call: AttentionCall) -> tuple[Params[Any], Inputs[Any]]:
    return lift_call(EXACT, call)


def tangent_of(call: AttentionCall, rng: np.random.Generator) -> dict[str, np.ndarray]:
    found = {n: integers(rng, getattr(call, n).shape) for n in NAMES}
    return found if call.bias is None else {**found, "bias": integers(rng, call.bias.shape)}


@each_call
def test_dual_numbers_give_output_and_derivative(call: AttentionCall) -> None:
    """Forward over dual numbers, with the stand-in for exp made its own derivative as in Lean."""
    rng = np.random.default_rng(1)
    tangent = tangent_of(call, rng)
    over = DualDomain(EXACT)
    p, x = lifted(call)
    moved = call.but(**{n: tangent[n] for n in NAMES}, bias=tangent.get("bias"))
    _, dx = lifted(moved)
    z = None if p.multiplier is None else over.pair(p.multiplier, EXACT.map(lambda n: n * 0, p.multiplier))
    pairs = Inputs(*(over.pair(getattr(x, n), getattr(dx, n)) for n in NAMES),
                   None if x.bias is None else over.pair(x.bias, dx.bias))  # fmt: skip
    re, eps = over.parts(attention.forward(over, Params(p.scale, p.visible, z), pairs))
    output = evaluate(EXACT, call, with_lse=False)["output"]
    assert re.shape == output.shape
    assert (EXACT.lower(re) == EXACT.lower(output)).all()
    assert (EXACT.lower(eps) == EXACT.lower(evaluate_jvp(EXACT, call, tangent))).all()


@each_call
def test_backward_is_the_transpose_of_the_jvp(call: AttentionCall) -> None:
    """Each entry of each gradient is the pairing of G with the JVP along that entry alone."""
    found = evaluate(EXACT, call, with_lse=False)
    grad = EXACT.lift(call.grad_output)
    for name in (*NAMES, "bias"):
        at = getattr(call, name)
        if at is None:
            continue
        if at.size == 0:
            assert found[f"grad_{name}"].size == 0
            continue
        for i in np.ndindex(at.shape):
            column = np.zeros(at.shape)
            column[i] = 1.0
            moved = evaluate_jvp(EXACT, call, {name: column})
            pairing = sum((grad * moved).reshape(-1).tolist(), EXACT.zero)
            assert pairing == found[f"grad_{name}"][i], f"{name}{i}"


# Symbols.


SYMBOLIC = SymbolicDomain()


def symbols(name: str, rows: int, columns: int) -> np.ndarray:
    return np.array(
        [[sympy.Symbol(f"{name}{i}{j}", real=True) for j in range(columns)] for i in range(rows)], dtype=object
    ).reshape(1, 1, rows, columns)


def symbolic_inputs(prefix: str, q: int, k: int, d: int, dv: int) -> Inputs[Any]:
    sizes = {"query": (q, d), "key": (k, d), "value": (k, dv), "bias": (q, k)}
    return Inputs(**{n: symbols(prefix + n[0], *size) for n, size in sizes.items()})


VISIBLE = np.array([[True, False], [False, False]]).reshape(1, 1, 2, 2)


@pytest.mark.parametrize(
    ("visible", "width"), [(np.ones((1, 1, 1, 2), dtype=bool), 1), (VISIBLE, 2), (np.ones((1, 1, 1, 1), dtype=bool), 2)]
)
def test_the_jvp_is_the_derivative(visible: np.ndarray, width: int) -> None:
    q, k = visible.shape[-2:]
    x, dx = symbolic_inputs("", q, k, width, 1), symbolic_inputs("d", q, k, width, 1)
    z = symbols("z", q, k)
    t = sympy.Symbol("t", real=True)
    p = Params(0.5, visible, z)
    moved = Inputs(*(getattr(x, n) + t * getattr(dx, n) for n in (*NAMES, "bias")))
    forward, jvp = attention.forward(SYMBOLIC, p, moved), attention.jvp(SYMBOLIC, p, x, dx)
    for f, d in zip(forward.reshape(-1), jvp.reshape(-1), strict=True):
        assert sympy.simplify(sympy.diff(f, t).subs(t, 0) - d) == 0


def test_the_pairing_is_an_identity() -> None:
    visible = np.array([[True, True]]).reshape(1, 1, 1, 2)
    x, dx = symbolic_inputs("", 1, 2, 1, 2), symbolic_inputs("d", 1, 2, 1, 2)
    p, g = Params(3.0, visible, symbols("z", 1, 2)), symbols("g", 1, 2)
    grads = attention.backward(SYMBOLIC, p, x, g)
    left = sum((g * attention.jvp(SYMBOLIC, p, x, dx)).reshape(-1).tolist())
    right = sum(sum((getattr(grads, n) * getattr(dx, n)).reshape(-1).tolist()) for n in (*NAMES, "bias"))
    assert sympy.simplify(left - right) == 0


def test_the_softmax_jacobian() -> None:
    """diag(p) - p pᵀ, over the visible keys; zero rows and columns for hidden ones."""
    visible = np.array([True, True, False, True]).reshape(1, 1, 1, 4)
    s = symbols("s", 1, 4)
    p = SYMBOLIC.softmax(visible, s)[0, 0, 0]
    for i, j in itertools.product(range(4), repeat=2):
        wanted = (p[i] if i == j else 0) - p[i] * p[j]
        assert sympy.simplify(sympy.diff(p[i], s[0, 0, 0, j]) - wanted) == 0
    assert p[2] == 0
    assert sympy.simplify(sum(p) - 1) == 0


def test_lse_in_symbols() -> None:
    visible = np.array([[True, False], [False, False]]).reshape(1, 1, 2, 2)
    s = symbols("s", 2, 2)
    found = SYMBOLIC.lse(visible, s)[0, 0, :, 0]
    assert sympy.simplify(found[0] - s[0, 0, 0, 0]) == 0
    assert found[1] == -sympy.oo


def test_pade_exp_is_positive_and_close_near_zero() -> None:
    for n in range(-40, 41):
        x = Fraction(n, 8)
        assert pade_exp(x) > 0
        assert pade_exp(x) * pade_exp(-x) == 1
    assert math.isclose(float(pade_exp(Fraction(1, 8))), math.exp(0.125), rel_tol=1e-7)
