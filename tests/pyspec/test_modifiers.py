"""Softcap and attention sink: their meaning, derivatives, bounds, and the call that carries them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import sympy
from flint import fmpq

from attnspec.pyspec import (
    AttentionCall,
    CallError,
    Oracle,
    bounds,
    call_from_json,
    call_to_json,
    evaluate,
    evaluate_jvp,
)
from attnspec.pyspec.attention import Inputs, Params, forward, jvp
from attnspec.pyspec.calls.call import Dropout, make_call
from attnspec.pyspec.calls.formats import round_to
from attnspec.pyspec.domains import BallDomain, ExactDomain, Float64Domain, SymbolicDomain
from attnspec.pyspec.domains.ball import outward, precision
from attnspec.pyspec.domains.big import BigDomain
from attnspec.pyspec.domains.exact import pade_exp, pade_tanh
from attnspec.pyspec.dual import DualDomain
from attnspec.pyspec.handover.gate import GateError, call_from_manifest, refusals
from attnspec.pyspec.handover.manifest_of import arrays_of, manifest_of
from attnspec.pyspec.oracle.bound import BoundDomain
from attnspec.pyspec.oracle.ledger import every_operation_stored, one_precision
from attnspec.pyspec.sink import extended

CAPS = (0.5, 1.0, 5.0, 50.0)


def drawn(seed: int, *, size: float = 1.0, dtype: str = "float64", **fields: Any) -> AttentionCall:
    """A small call with grouped heads, a broadcast bias, hidden keys, an empty row and dropout."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int, by: float = 1.0) -> np.ndarray:
        return round_to(dtype, by * rng.standard_normal(shape))

    visible = rng.random((2, 4, 3, 5)) < 0.7
    visible[:, :, 1] = False
    return make_call(
        normal(2, 4, 3, 2, by=size),
        normal(2, 2, 5, 2, by=size),
        normal(2, 2, 5, 3),
        dtype=dtype,
        visible=visible,
        **{
            "bias": normal(1, 4, 3, 5),
            "encoding": "additive",
            "grad_output": normal(2, 4, 3, 3),
            "dropout": Dropout(0.5, 2.0 * (rng.random((2, 4, 3, 5)) < 0.5)),
            **fields,
        },
    )


def plain(call: AttentionCall, sink: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """Softcap and sink written out again, row by row, with numpy's own exp and tanh."""
    out = np.zeros((*call.score_shape[:3], call.axes.value_width))
    lse = np.full(call.score_shape[:3], -np.inf)
    bias = 0.0 if call.bias is None else call.bias
    raw = call.scale_value * (call.query @ np.swapaxes(call.key[:, list(call.head_map)], -1, -2))
    s = (raw if call.softcap is None else call.softcap * np.tanh(raw / call.softcap)) + bias
    for b, h, i in np.ndindex(call.score_shape[:3]):
        seen = call.visible[b, h, i]
        mass = np.exp(s[b, h, i][seen]).sum() + (0.0 if sink is None else np.exp(sink[h]))
        if mass > 0:
            z = np.ones(len(seen)) if call.multiplier is None else call.multiplier[b, h, i]
            w = np.where(seen, np.exp(s[b, h, i]), 0.0) / mass * z
            out[b, h, i] = w @ call.value[b, call.head_map[h]]
            lse[b, h, i] = np.log(mass)
    return {"output": out, "lse": lse}


@pytest.mark.parametrize("sink", [None, np.array([0.0, -1.5, 4.0, 30.0])])
@pytest.mark.parametrize("cap", [None, *CAPS])
def test_forward_is_what_it_says(cap: float | None, sink: np.ndarray | None) -> None:
    call = drawn(1, size=3.0, softcap=cap, sink=sink)
    found, again = evaluate(Float64Domain(), call), plain(call, sink)
    assert np.abs(found["output"] - again["output"]).max() < 1e-13
    assert np.allclose(found["lse"], again["lse"], rtol=1e-13, atol=1e-13)


def test_a_sink_defines_an_empty_row() -> None:
    call = drawn(2, sink=np.array([0.0, -3.0, 2.0, 7.0]))
    found = Oracle(call).fast()
    assert not found["output"][0][:, :, 1].any()
    assert found["lse"][0][:, :, 1].tolist() == [[0.0, -3.0, 2.0, 7.0]] * 2
    assert not found["grad_query"][0][:, :, 1].any()


def test_the_sink_logit_is_not_capped() -> None:
    call = drawn(3, softcap=1.0, sink=np.full(4, 9.0))
    assert (evaluate(Float64Domain(), call)["lse"] > 9.0 - 1e-12).all()


@pytest.mark.parametrize("cap", [None, 1.0, 5.0])
@pytest.mark.parametrize("sinks", [False, True])
def test_gradients_are_central_differences(cap: float | None, sinks: bool) -> None:
    call = drawn(4, softcap=cap, sink=np.array([0.5, -1.0, 2.0, 0.0]) if sinks else None)
    found = {n: t[0] for n, t in Oracle(call).fast().items()}
    step = 1e-6
    for name in ("query", "key", "value", "bias", *(["sink"] if sinks else [])):
        array = getattr(call, name)
        for at in list(np.ndindex(array.shape))[:7]:
            ends = []
            for sign in (1.0, -1.0):
                moved = array.copy()
                moved[at] += sign * step
                ends.append((evaluate(Float64Domain(), call.but(**{name: moved}))["output"] * call.grad_output).sum())
            assert abs((ends[0] - ends[1]) / (2 * step) - found[f"grad_{name}"][at]) < 1e-7, (name, at)


@pytest.mark.parametrize("cap", [None, 2.0])
def test_backward_is_the_transpose_of_the_jvp(cap: float | None) -> None:
    call = drawn(5, softcap=cap, sink=np.array([0.5, -1.0, 2.0, 0.0]))
    rng = np.random.default_rng(0)
    names = ("query", "key", "value", "bias", "sink")
    tangent = {n: rng.standard_normal(getattr(call, n).shape) for n in names}
    moved = evaluate_jvp(Float64Domain(), call, tangent)
    found = {n: t[0] for n, t in Oracle(call).fast().items()}
    right = sum((tangent[n] * found[f"grad_{n}"]).sum() for n in names)
    assert abs((moved * call.grad_output).sum() - right) < 1e-12


def test_jvp_is_the_derivative_over_dual_numbers() -> None:
    exact = ExactDomain()
    over = DualDomain(exact)
    rng = np.random.default_rng(6)

    def rationals(*shape: int) -> np.ndarray:
        return exact.lift(rng.integers(-6, 7, shape) / 4)

    x = Inputs(rationals(2, 3), rationals(4, 3), rationals(4, 2), rationals(2, 4))
    dx = Inputs(rationals(2, 3), rationals(4, 3), rationals(4, 2), rationals(2, 4))
    p: Params[Any] = Params(0.5, rng.random((2, 4)) < 0.7, None, 2.0)
    pairs = Inputs(*(over.pair(getattr(x, n), getattr(dx, n)) for n in ("query", "key", "value", "bias")))
    re, eps = over.parts(forward(over, p, pairs))
    assert (re == forward(exact, p, x)).all()
    assert (eps == jvp(exact, p, x, dx)).all()


def test_the_slope_is_the_derivative_of_the_cap_in_symbols() -> None:
    dom = SymbolicDomain()
    a = sympy.Symbol("a", real=True)
    matrix = np.array([[a]], dtype=object)
    capped = dom.softcap(5.0, matrix)[0, 0]
    slope = dom.softcap_grad(5.0, matrix, np.array([[sympy.Integer(1)]], dtype=object))[0, 0]
    assert capped == 5 * sympy.tanh(a / 5)
    assert sympy.simplify(sympy.diff(capped, a) - slope) == 0


def test_the_rational_tanh_comes_from_the_rational_exp() -> None:
    for n in range(-8, 9):
        x = fmpq(n, 3)
        e = pade_exp(2 * x)
        assert pade_tanh(x) == (e - 1) / (e + 1)
    assert abs(float(Fraction(3, 8)) - float(pade_tanh(Fraction(3, 8)))) < 0.02
    found = evaluate(ExactDomain(), drawn(7, softcap=2.0, sink=np.zeros(4)), with_lse=False)
    assert all(isinstance(x, fmpq) for x in found["grad_sink"].ravel())


@pytest.mark.parametrize("cap", [None, 1.0, 20.0])
def test_domains_agree_and_the_bound_encloses(cap: float | None) -> None:
    call = drawn(8, size=4.0, softcap=cap, sink=np.array([0.0, -20.0, 3.0, 1.0]))
    big = BigDomain()
    second = {n: big.lower(t) for n, t in evaluate(big, call).items()}
    bound = BoundDomain()
    ours = {n: bound.lower(t) for n, t in evaluate(bound, call).items()}
    with precision(113):
        balls = evaluate(BallDomain(), call)
        for name, exact in balls.items():
            value, error = ours[name]
            for at in np.ndindex(exact.shape):
                low, high = outward(exact[at])
                assert value[at] - error[at] <= low <= high <= value[at] + error[at], (name, at)
                assert second[name][at] == pytest.approx(low, rel=1e-15, abs=1e-300)


def rounded_attention(call: AttentionCall, every: str | None) -> dict[str, np.ndarray]:
    """Forward and backward in float32, each result stored in the dtype `every` where one is named."""
    f = np.float32

    def at(a: np.ndarray) -> np.ndarray:
        a = np.asarray(a, dtype=f)
        return a if every is None else round_to(every, a.astype(np.float64)).astype(f)

    heads = list(call.head_map)
    q, k, v = call.query.astype(f), call.key[:, heads].astype(f), call.value[:, heads].astype(f)
    g = call.grad_output.astype(f)  # type: ignore[union-attr]
    cap, alpha = f(call.softcap), f(call.scale_value)
    raw = at(at(q @ np.swapaxes(k, -1, -2)) * alpha)
    t = at(np.tanh(at(raw / cap)))
    s = np.where(call.visible, at(t * cap), -np.inf)
    p = np.exp(at(s - s.max(-1, keepdims=True)))
    p = at(p / p.sum(-1, keepdims=True))
    gp = at(g @ np.swapaxes(v, -1, -2))
    gs = at(p * at(gp - (p * gp).sum(-1, keepdims=True)))
    ga = at(at(gs * at(f(1) - at(t * t))) * alpha)
    gk, gv = np.swapaxes(ga, -1, -2) @ q, np.swapaxes(p, -1, -2) @ g
    found = {"output": p @ v, "grad_query": ga @ k, "grad_key": gk, "grad_value": gv}
    return {n: round_to(call.dtype, a.astype(np.float64)) for n, a in found.items()}


@pytest.mark.parametrize(("dtype", "every"), [("float32", None), ("bfloat16", None), ("bfloat16", "bfloat16")])
def test_float32_kernels_stay_within_the_bound(dtype: str, every: str | None) -> None:
    ledger = every_operation_stored(dtype) if every else one_precision(dtype)
    worst = 0.0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        size = float(rng.choice([0.01, 1.0, 8.0, 60.0]))
        cap = float(rng.choice([0.5, 1.0, 5.0, 20.0, 50.0]))
        call = drawn(seed, size=size, dtype=dtype, softcap=cap, bias=None, dropout=None, encoding="bool")
        call = call.but(
            key=np.repeat(call.key, 2, axis=1), value=np.repeat(call.value, 2, axis=1), head_map=(0, 1, 2, 3),
            visibility=replace(call.visibility, mask=rng.random((2, 4, 3, 5)) < 0.9),
        )  # fmt: skip
        if not call.visible.any(-1).all():
            continue
        oracle, allowed = Oracle(call), bounds(call, ledger)
        with np.errstate(all="ignore"):
            seen = rounded_attention(call, every)
        for name, tensor in seen.items():
            judged = oracle.judge(name, tensor, allowed[name])
            assert judged.inside, (seed, name, judged)
            worst = max(worst, judged.worst)
    assert worst > 0.02, "a bound that nothing approaches"


def test_saturated_scores_keep_a_tight_bound() -> None:
    """Scores of thousands under a cap of 5: their own error no longer matters."""
    call = drawn(9, size=60.0, dtype="bfloat16", bias=None, encoding="bool", dropout=None)
    wide = bounds(call, one_precision("bfloat16"))["output"].max()
    capped = bounds(call.but(softcap=5.0), one_precision("bfloat16"))["output"].max()
    assert capped <= wide
    lse = bounds(call.but(softcap=5.0, sink=np.zeros(4)), one_precision("bfloat16"))["lse"]
    assert lse.max() < 1e-4


def test_a_cap_outside_the_accumulation_format_bounds_nothing() -> None:
    call = drawn(10, softcap=1e300)
    assert np.isinf(bounds(call, one_precision("float32"))["output"][call.visible.any(-1)]).all()


def test_json_carries_both_and_older_documents_stay_as_they_were() -> None:
    call = drawn(11, softcap=0.1, sink=np.array([0.0, -1.5, 2.0, 0.25]))
    again = call_from_json(call_to_json(call))
    assert again.softcap == 0.1
    assert again.sink is not None
    assert again.sink.tolist() == [0.0, -1.5, 2.0, 0.25]
    without = call_to_json(call.but(softcap=None, sink=None))
    assert "softcap" not in without
    assert "sink" not in without
    assert call_from_json(without).softcap is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"softcap": 0.0}, "softcap = 0.0: expected a finite float above 0"),
        ({"softcap": -1.0}, "softcap = -1.0"),
        ({"softcap": float("inf")}, "softcap = inf"),
        ({"softcap": 5}, "softcap = 5: expected a finite float"),
        ({"sink": np.zeros(3)}, r"sink has shape \[3\]: expected \[4\]"),
        ({"sink": np.full(4, np.inf)}, r"sink\[0\] = inf: expected a finite value of float64"),
        ({"sink": np.full(4, 0.1), "dtype": "float32"}, "is not a value of float32"),
    ],
)
def test_a_call_names_the_broken_field(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(CallError, match=message):
        drawn(12, **({"dtype": "float64"} | fields))


def test_the_extension_is_the_sink_written_out() -> None:
    call = drawn(13, sink=np.array([0.5, -1.0, 2.0, 0.0]))
    wide = extended(call)
    assert wide.score_shape == (2, 4, 3, 6)
    assert wide.visible[..., 5].all()
    assert wide.bias is not None
    assert (wide.bias[..., 5] == call.sink[None, :, None]).all()  # type: ignore[index]
    assert not wide.value[:, :, 5].any()


def test_the_gate_passes_and_refuses_modifiers() -> None:
    call = drawn(14, softcap=5.0, sink=np.array([0.5, -1.0, 2.0, 0.0]), dtype="float32")
    manifest, arrays = manifest_of(call), arrays_of(call)
    passed = call_from_manifest(manifest, arrays)
    assert passed.softcap == 5.0
    assert np.array_equal(passed.sink, call.sink)  # type: ignore[arg-type]
    for cap in (0.0, -5.0, True, "5", float("inf")):
        manifest["attention_call_v1"]["score"]["softcap"] = cap
        assert [r.field for r in refusals(manifest)] == ["score.softcap"]
    manifest = manifest_of(call)
    manifest["attention_call_v1"]["score"]["sink"] = {"role": "key", "shape": [4]}
    assert [r.field for r in refusals(manifest)] == ["score.sink.role"]
    manifest["attention_call_v1"]["score"]["sink"] = {"role": "logit_without_value", "shape": [2]}
    assert [r.field for r in refusals(manifest)] == ["score.sink.shape"]
    with pytest.raises(GateError, match=r"arrays\.sink"):
        call_from_manifest(manifest_of(call), {n: a for n, a in arrays.items() if n != "sink"})
    with pytest.raises(GateError, match="speaks of no such array"):
        call_from_manifest(manifest_of(call.but(sink=None)), arrays)


def test_the_ledger_states_how_well_tanh_is_computed() -> None:
    call = drawn(15, softcap=1.0, bias=None, encoding="bool", dropout=None)
    ledger = one_precision("float32")
    assert ledger.tanh_error == 4.0
    fine, rough = bounds(call, ledger)["lse"], bounds(call, replace(ledger, tanh_error=4000.0))["lse"]
    assert rough.max() > 50 * fine.max()
    assert np.array_equal(
        bounds(call.but(softcap=None), ledger)["lse"],
        bounds(call.but(softcap=None), replace(ledger, tanh_error=4000.0))["lse"],
    )
    with pytest.raises(ValueError, match=r"tanh_error = -1\.0: expected a number >= 0"):
        replace(ledger, tanh_error=-1.0)
