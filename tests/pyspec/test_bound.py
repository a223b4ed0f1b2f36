"""The derived bound holds for every kernel that keeps to its ledger, and refutes kernels that do not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from attnspec.pyspec import AttentionCall, Dropout, Ledger, Oracle, bounds, evaluate, make_call
from attnspec.pyspec.calls.formats import FORMATS, round_to
from attnspec.pyspec.domain import STAGES
from attnspec.pyspec.oracle.bound import BoundDomain
from attnspec.pyspec.oracle.ledger import every_operation_stored, flash, named_ledgers, one_precision
from tests.pyspec.draws import PROFILES, draw
from tests.pyspec.legal_kernel import ORDERS, LegalKernel

LEDGERS = {
    "one-precision": one_precision,
    "every-operation-stored": every_operation_stored,
    "flash": lambda dtype: flash(dtype, gradient_tile=4, key_tile=3),
    "flash-tiles-of-one": lambda dtype: flash(dtype, gradient_tile=1, key_tile=1),
    "float64-inside": lambda dtype: replace(one_precision(dtype), compute="float64"),
    "weights-saved-late": lambda dtype: replace(flash(dtype, gradient_tile=None, key_tile=2), delta="weights"),
}


def outside(call: AttentionCall, seen: dict[str, np.ndarray], ledger: Ledger) -> list[str]:
    """Tensors that the ledger refutes, each with its error over its bound."""
    allowed, oracle = bounds(call, ledger), Oracle(call)
    assert all((allowed[name] >= 0).all() for name in seen), "a bound that is no number, or negative"
    judged = [oracle.judge(name, seen[name], allowed[name]) for name in seen]
    return [f"{j.tensor}{j.index} {j.observed!r} is {j.worst:.4g} x the bound" for j in judged if not j.inside]


@pytest.mark.parametrize("name", LEDGERS)
@pytest.mark.parametrize("dtype", FORMATS)
def test_legal_kernels_are_inside(name: str, dtype: str) -> None:
    ledger = LEDGERS[name](dtype)
    for seed in range(12):
        rng = np.random.default_rng([seed, 1])
        call = draw(rng, dtype)
        kernel = LegalKernel(ledger, rng, flush=bool(rng.integers(2)))
        assert outside(call, kernel.run(call), ledger) == [], f"seed {seed}"


@pytest.mark.parametrize("name", ["one-precision", "flash"])
@pytest.mark.parametrize("dtype", FORMATS)
def test_numbers_at_the_ends_of_the_range(name: str, dtype: str) -> None:
    """Subnormal, smallest normal and nearly overflowing numbers together, with and without flushing."""
    ledger = LEDGERS[name](dtype)
    for seed in range(20):
        rng = np.random.default_rng([seed, 2])
        call = draw(rng, dtype, profiles=("tiny", "huge"))
        kernel = LegalKernel(ledger, rng, flush=seed % 2 == 0)
        assert outside(call, kernel.run(call), ledger) == [], f"seed {seed}"


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", ["one-precision", "every-operation-stored", "flash"])
def test_long_sums(name: str, order: str) -> None:
    """Three thousand keys, then three thousand queries, summed one after the other with errors of one sign."""
    dtype = "float32"
    ledger = LEDGERS[name](dtype) if name != "flash" else flash(dtype, gradient_tile=32, key_tile=64)
    rng = np.random.default_rng(7)
    for queries, keys in ((1, 3000), (3000, 2)):
        for constant in (True, False):
            value = np.full((1, 1, keys, 1), 0.1) if constant else rng.uniform(0.5, 1.0, (1, 1, keys, 1))
            call = make_call(
                np.zeros((1, 1, queries, 1)) if constant else round_to(dtype, rng.random((1, 1, queries, 1))),
                round_to(dtype, rng.random((1, 1, keys, 1))),
                round_to(dtype, value),
                bias=np.zeros((1, 1, 1, 1)),
                encoding="additive",
                grad_output=round_to(dtype, np.full((1, 1, queries, 1), 0.3)),
            )
            assert outside(call, LegalKernel(ledger, rng, order=order).run(call), ledger) == []


def test_a_sequential_sum_fills_much_of_its_bound() -> None:
    """A running sum at one loses every term below half an ulp: the bound for sums is reached, not guessed."""
    n = 400
    grad = round_to("float32", np.full((1, 1, n, 1), 0.99 * 2.0**-24))
    grad[0, 0, 0, 0] = 1.0
    call = make_call(np.zeros((1, 1, n, 1)), np.zeros((1, 1, 1, 1)), np.ones((1, 1, 1, 1)), grad_output=grad)
    ledger = one_precision("float32")
    kernel = LegalKernel(ledger, np.random.default_rng(0), order="forward")
    judged = Oracle(call).judge("grad_value", kernel.run(call)["grad_value"], bounds(call, ledger)["grad_value"])
    assert judged.inside
    assert judged.worst > 0.9


def test_one_sum_over_several_broadcast_axes_of_a_bias() -> None:
    """A bias of one number: its gradient may be summed in one run over batch, heads, queries and keys."""
    rng = np.random.default_rng(3)
    shape = (2, 2, 9, 9)
    for seed in range(10):
        call = make_call(
            round_to("float32", rng.standard_normal((*shape[:3], 2))),
            round_to("float32", rng.standard_normal((2, 2, 9, 2))),
            round_to("float32", rng.standard_normal((2, 2, 9, 2))),
            bias=np.zeros((1, 1, 1, 1)),
            encoding="additive",
            grad_output=round_to("float32", rng.standard_normal((*shape[:3], 2))),
        )
        ledger = one_precision("float32")
        assert outside(call, LegalKernel(ledger, np.random.default_rng(seed)).run(call), ledger) == []
    # Axis by axis the roundings are 2 + 2 + 9 + 9; in one run there are 324.
    allowed = bounds(call, ledger)["grad_bias"].item()
    each = bounds(call.but(bias=np.zeros(shape)), ledger)["grad_bias"]
    exact = Oracle(call.but(bias=np.zeros(shape))).fast()["grad_bias"][0]
    assert allowed >= each.sum() + 323 * 2.0**-24 * np.abs(exact).sum()


def single(query: float, key: float, value: float = 1.0, scale: float | None = 1.0, **fields: object) -> AttentionCall:
    """One query and two keys, the second of which is zero; width one."""
    return make_call(
        np.full((1, 1, 1, 1), query),
        np.array([key, 0.0]).reshape(1, 1, 2, 1),
        np.array([value, 0.0]).reshape(1, 1, 2, 1),
        scale=scale,
        grad_output=np.ones((1, 1, 1, 1)),
        **fields,
    )


SUBNORMAL, HUGE = 2.0**-130, 2.0**127


@pytest.mark.parametrize(
    ("call", "placement"),
    [
        (single(SUBNORMAL, HUGE), "on_scores"),
        (single(1.0, SUBNORMAL, scale=HUGE), "on_scores"),
        (single(HUGE, 1.0, scale=2.0**-128), "on_scores"),
        (single(2.0**-125, HUGE, scale=0.125), "on_query"),
        (single(HUGE, 2.0**-125, scale=0.125), "on_key"),
        (single(HUGE, 2.0**-126, scale=0.5), "split"),
        (single(HUGE, 2.0**-126, scale=4.0), "on_query"),
        (single(1.0, 2.0**-126, scale=2.0**130), "on_scores"),
    ],
    ids=[
        "a subnormal query is taken for zero",
        "a subnormal key is taken for zero",
        "a subnormal scale is taken for zero",
        "the scaled query flushes",
        "the scaled key flushes",
        "the key times the root of the scale flushes",
        "the scaled query overflows",
        "the scale overflows",
    ],
)
def test_flushed_or_overflowed_on_the_way(call: AttentionCall, placement: str) -> None:
    """The exact logit is of ordinary size, and the kernel's is zero or infinite: no claim may be made."""
    ledger = one_precision("float32")
    kernel = LegalKernel(ledger, np.random.default_rng(0), flush=True, placement=placement)
    seen = kernel.run(call)
    exact = Oracle(call).fast()["output"][0]
    assert not np.allclose(seen["output"], exact, rtol=1e-3, equal_nan=False)
    assert outside(call, seen, ledger) == []


def test_numerators_of_a_late_normaliser_overflow() -> None:
    big = float(round_to("float32", np.array(1e38)))
    call = make_call(np.zeros((1, 1, 1, 1)), np.zeros((1, 1, 4, 1)), np.full((1, 1, 4, 1), big), dtype="float32")
    online = flash("float32", gradient_tile=None, key_tile=2)
    kernel = LegalKernel(online, np.random.default_rng(0))
    assert np.isinf(kernel.run(call)["output"]).all()
    assert outside(call, kernel.run(call), online) == []
    # Where the weights are stored, and so normalised first, nothing overflows and the claim stands.
    assert np.isfinite(bounds(call, every_operation_stored("float32"))["output"]).all()


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("through", ["product", "scale", "bias"])
def test_scores_that_overflow_float64(sign: float, through: str) -> None:
    """The only visible score is infinite in every float64 kernel, and in this module's own arithmetic."""
    choices = {"product": (1e308, 1.0, 0.0), "scale": (1e308, 3.0, 0.0), "bias": (1.7e308, 1.0, 1e308)}
    query, scale, bias = choices[through]
    call = make_call(
        np.full((1, 1, 1, 2), query / 1e8), np.full((1, 1, 1, 2), sign * 1e8 if through == "product" else sign * 5e7),
        np.ones((1, 1, 1, 1)), dtype="float64", scale=scale, bias=np.full((1, 1, 1, 1), sign * bias),
        encoding="additive", grad_output=np.ones((1, 1, 1, 1)),
    )  # fmt: skip
    ledger = flash("float64", gradient_tile=None, key_tile=1)
    allowed = bounds(call, ledger)
    assert np.isinf(allowed["lse"]).all()
    assert np.isinf(allowed["output"]).all()
    assert np.isfinite(evaluate(BoundDomain(ledger), call)["output"].value).all()
    assert outside(call, LegalKernel(ledger, np.random.default_rng(0)).run(call), ledger) == []


def test_a_multiplier_is_rounded_too() -> None:
    """1 / 0.9 is no float32 number; every kernel that takes it rounds it before it multiplies."""
    rng = np.random.default_rng(5)
    for seed in range(10):
        call = single(0.0, 0.0, 1.0, dropout=Dropout(0.1, np.full((1, 1, 1, 2), 1 / 0.9)))
        ledger = one_precision("float32")
        assert outside(call, LegalKernel(ledger, rng).run(call), ledger) == [], seed


# The kernel keeps to the first ledger and claims the second: some call must refute it.
FALSE_CLAIMS = {
    "stored after every operation, claimed once": (every_operation_stored("bfloat16"), one_precision("bfloat16")),
    "weights cast to storage, claimed uncast": (
        named_ledgers("bfloat16")["flash"],
        replace(named_ledgers("bfloat16")["flash-uncast"], gradient_tile=None),
    ),
    "float16 weights cast, claimed uncast": (
        named_ledgers("float16")["flash"],
        named_ledgers("float16")["flash-uncast"],
    ),
    "gradients rounded after each tile, claimed once": (
        flash("bfloat16", gradient_tile=1, key_tile=64),
        flash("bfloat16", gradient_tile=None, key_tile=64),
    ),
    "D from the rounded output, claimed from the weights": (
        flash("bfloat16", gradient_tile=None, key_tile=64),
        replace(flash("bfloat16", gradient_tile=None, key_tile=64), delta="weights", weights="saved"),
    ),
    "float32 inside, claimed float64": (one_precision("float32"), named_ledgers("float32")["float64-inside"]),
    "bfloat16 storage, claimed float32": (one_precision("bfloat16"), one_precision("float32")),
    "LSE stored, claimed kept": (
        replace(one_precision("bfloat16"), stores=(*one_precision("bfloat16").stores, "lse")),
        one_precision("bfloat16"),
    ),
    "scores stored, claimed kept": (
        replace(one_precision("float16"), stores=(*one_precision("float16").stores, "dot")),
        one_precision("float16"),
    ),
    "heads summed in storage, claimed in float32": (
        every_operation_stored("bfloat16"),
        replace(every_operation_stored("bfloat16"), stores=one_precision("bfloat16").stores, running_sums_stored=False),
    ),
}


@pytest.mark.parametrize("name", FALSE_CLAIMS)
def test_false_claims_are_refuted(name: str) -> None:
    true, claimed = FALSE_CLAIMS[name]
    profiles = tuple(p for p in PROFILES if p not in ("tiny", "huge"))
    for seed in range(60):
        rng = np.random.default_rng([seed, 4])
        call = draw(rng, true.storage, most=16, profiles=profiles)
        if claimed.storage != true.storage:
            call = call.but(dtype=claimed.storage)
        if outside(call, LegalKernel(true, rng).run(call), claimed):
            return
    pytest.fail("no call tells the two ledgers apart")


# Stages that the call below does not come through; those of slopes are held by test_alibi_bound.
ELSEWHERE = ("lse", "delta", "weights_grad", "grad_bias", "alibi", "alibi_grad", "grad_slopes")


@pytest.mark.parametrize("stage", [s for s in STAGES if s not in ELSEWHERE])
def test_every_stage_that_stores_widens_something(stage: str) -> None:
    """A ledger line that changed no bound would be a claim that nobody checks."""
    bare = replace(one_precision("bfloat16"), stores=())
    call = draw(np.random.default_rng(11), "bfloat16", profiles=("normal",))
    call = call.but(bias=np.ones(call.score_shape), encoding="additive", dropout=None)
    call = call.but(softcap=5.0 if stage.startswith("capped") else None)
    before, after = bounds(call, bare), bounds(call, replace(bare, stores=(stage,)))
    assert all((after[n] >= before[n] * (1 - 1e-12)).all() for n in before)
    assert any((after[n] > before[n]).any() for n in before)


def test_weights_stay_in_the_unit_interval_however_large_the_logits() -> None:
    """Logits of a hundred thousand in bfloat16 scores: the output stays bounded by the values."""
    rng = np.random.default_rng(0)
    call = make_call(
        round_to("bfloat16", 300 * rng.standard_normal((1, 1, 3, 4))),
        round_to("bfloat16", 300 * rng.standard_normal((1, 1, 5, 4))),
        round_to("bfloat16", rng.standard_normal((1, 1, 5, 2))),
        dtype="bfloat16",
    )
    allowed = bounds(call, every_operation_stored("bfloat16"))["output"]
    assert np.isfinite(allowed).all()
    assert (allowed <= 1.1 * np.abs(call.value).sum()).all()


def test_what_no_key_reaches_is_exact() -> None:
    """Empty rows and hidden keys admit no error at all."""
    rng = np.random.default_rng(1)
    visible = np.ones((1, 1, 3, 4), dtype=bool)
    visible[..., 1, :] = False
    visible[..., 2] = False
    call = make_call(
        rng.standard_normal((1, 1, 3, 2)),
        rng.standard_normal((1, 1, 4, 2)),
        rng.standard_normal((1, 1, 4, 2)),
        dtype="float64",
        visible=visible,
        bias=np.ones((1, 1, 3, 4)),
        encoding="additive",
        grad_output=rng.standard_normal((1, 1, 3, 2)),
    )
    allowed = bounds(call, one_precision("float64"))
    tiny = 100 * np.finfo(np.float64).smallest_normal
    assert (allowed["output"][0, 0, 1] <= tiny).all()
    assert allowed["lse"][0, 0, 1] == 0
    assert (allowed["grad_bias"][~visible] <= tiny).all()
    assert (allowed["grad_key"][0, 0, 2] <= tiny).all()
    assert (allowed["grad_value"][0, 0, 2] <= tiny).all()
    assert (allowed["grad_query"][0, 0, 1] <= tiny).all()


def test_roundings_after_each_tile_compound() -> None:
    """One term, rounded again after each of 64 tiles: (1 + u)^64 - 1, which is more than 64 u."""
    grad = np.zeros((1, 1, 64, 1))
    grad[0, 0, 0, 0] = 1.0
    zeros = np.zeros((1, 1, 64, 1))
    call = make_call(zeros, zeros[:, :, :1], np.ones((1, 1, 1, 1)), dtype="bfloat16", grad_output=grad)
    allowed = bounds(call, flash("bfloat16", gradient_tile=1, key_tile=1))["grad_value"].item()
    assert allowed >= (1 + 2.0**-8) ** 64 - 1 > 64 * 2.0**-8


def test_bounds_want_a_ledger() -> None:
    call = make_call(np.ones((1, 1, 1, 1)), np.ones((1, 1, 1, 1)), np.ones((1, 1, 1, 1)))
    with pytest.raises(TypeError, match=r"'math': expected an attnspec\.pyspec\.oracle\.ledger\.Ledger"):
        bounds(call, "math")
