"""Policies for queries that see no key, in exact arithmetic: forward, gradients, and what is refused."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from attnspec.pyspec import (
    AttentionCall,
    CallError,
    Dropout,
    Visibility,
    call_from_json,
    call_to_json,
    evaluate,
    make_call,
)
from attnspec.pyspec.calls.call import EMPTY_ROW_POLICIES, Backend
from attnspec.pyspec.calls.masks.policies import (
    POLICIES,
    Contract,
    Prepared,
    Sentinel,
    contract_reference,
    prepare,
    rows_without_key,
)
from attnspec.pyspec.domains import ExactDomain, Float64Domain

B, H, Q, K, DK, DV = 2, 2, 4, 5, 2, 3


def exact(call: AttentionCall) -> dict[str, np.ndarray]:
    dom = ExactDomain()
    return {name: dom.lower(t) for name, t in evaluate(dom, call, with_lse=False).items()}


def finished(prepared: Prepared) -> dict[str, np.ndarray]:
    return prepared.finish(exact(prepared.kernel_call))


def same(a: np.ndarray, b: np.ndarray) -> bool:
    assert a.shape == b.shape
    return bool((a == b).all())


def padded_call(seed: int = 0, **fields: object) -> AttentionCall:
    """Grouped heads, a bias, a dropout multiplier; queries 2 and 3 of batch row 1 are padding that sees no key."""
    rng = np.random.default_rng(seed)

    def integers(*shape: int) -> np.ndarray:
        return rng.integers(-2, 3, shape).astype(float)

    mask = rng.random((B, H, Q, K)) < 0.6
    mask[..., 0] = True
    real = np.ones((B, Q), dtype=bool)
    real[1, 2:] = False
    mask[1, :, 2:] = False
    given: dict = {
        "query": integers(B, H, Q, DK), "key": integers(B, 1, K, DK), "value": integers(B, 1, K, DV),
        "dtype": "float32", "visibility": Visibility(mask, real), "head_map": (0, 0), "bias": integers(B, 1, 1, K),
        "encoding": "additive", "grad_output": integers(B, H, Q, DV),
        "dropout": Dropout(0.5, 2.0 * (rng.random((B, H, Q, K)) < 0.5)),
    }  # fmt: skip
    return AttentionCall(**{**given, **fields})


def test_reject_takes_calls_without_empty_rows_and_no_others() -> None:
    with pytest.raises(CallError, match=r"row \[batch 1, head 0, query 2\] sees no key and empty_rows is 'reject'"):
        prepare(padded_call(), "reject")
    full = padded_call(visibility=Visibility(np.ones((1, 1, 1, 1), bool)))
    got = prepare(full, "reject")
    assert got.kernel_call.visibility.empty_rows == "reject"
    assert same(finished(got)["output"], exact(full)["output"])


def test_zero_leaves_it_to_the_kernel() -> None:
    call = padded_call()
    got = finished(prepare(call, "zero"))
    for name in ("output", "grad_query"):
        assert not got[name][1, :, 2:].any()
    assert got["output"][0].any()


@pytest.mark.parametrize("seed", range(3))
def test_sanitize_gives_the_call_its_zeros_forward_and_backward(seed: int) -> None:
    call = padded_call(seed)
    prepared = prepare(call, "sanitize_then_zero_invalid_query")
    assert prepared.kernel_call.visible.any(axis=-1).all()
    assert prepared.kernel_call.visibility.query_valid is None
    got, wanted = finished(prepared), exact(call)
    assert set(got) == set(wanted)
    for name, tensor in wanted.items():
        assert same(got[name], tensor), name
    # The temporary key was lent to unused rows alone.
    lent = prepared.kernel_call.visible & ~np.broadcast_to(call.visibility.mask, call.score_shape)
    assert lent.sum() == 2 * H
    assert lent[1, :, 2:, 0].all()


def test_sanitize_returns_minus_infinity_as_the_lse_of_an_unused_row() -> None:
    call = padded_call()
    prepared = prepare(call, "sanitize_then_zero_invalid_query")
    lse = evaluate(Float64Domain(), prepared.kernel_call)["lse"]
    assert np.isfinite(lse).all()
    assert np.isneginf(prepared.finish({"lse": lse, "output": np.zeros((B, H, Q, DV))})["lse"][1, :, 2:]).all()


def test_zeroing_nan_afterwards_is_no_policy() -> None:
    """The gradient of an undefined row is undefined: sanitising must come before the softmax."""
    call = padded_call()
    broken = {"output": np.full((B, H, Q, DV), np.nan), "grad_key": np.full((B, 1, K, DK), np.nan)}
    done = prepare(call, "sanitize_then_zero_invalid_query").finish(broken)
    assert not done["output"][1, :, 2:].any()
    assert np.isnan(done["grad_key"]).all()


@pytest.mark.parametrize("policy", ["sanitize_then_zero_invalid_query", "sentinel_key"])
def test_a_temporary_key_never_makes_a_real_query_legal(policy: str) -> None:
    call = padded_call()
    all_real = call.but(visibility=Visibility(call.visibility.mask))
    sentinel = Sentinel(np.zeros(DK), np.zeros(DV)) if policy == "sentinel_key" else None
    with pytest.raises(CallError, match=r"row \[batch 1, head 0, query 2\] is a real query and sees no key"):
        prepare(all_real, policy, sentinel=sentinel)
    only_one_real = np.ones((B, Q), bool)
    only_one_real[1, 3] = False
    with pytest.raises(CallError, match="query 2"):
        prepare(call.but(visibility=Visibility(call.visibility.mask, only_one_real)), policy, sentinel=sentinel)


def test_query_validity_alone_hides_no_key() -> None:
    """An unused query that sees keys is computed like any other, and then thrown away."""
    real = np.array([[True, False]])
    call = make_call(np.ones((1, 1, 2, 1)), np.ones((1, 1, 2, 1)), np.ones((1, 1, 2, 1)), dtype="float32")
    call = call.but(visibility=Visibility(np.ones((1, 1, 1, 1), bool), real))
    assert not rows_without_key(call).any()
    kernel_call = prepare(call, "sanitize_then_zero_invalid_query").kernel_call
    assert kernel_call.visible.all()
    assert finished(prepare(call, "sanitize_then_zero_invalid_query"))["output"].ravel().tolist() == [1, 0]


def test_there_must_be_a_key_to_lend() -> None:
    call = padded_call()
    none = Visibility(np.zeros((1, 1, 1, 1), bool), np.zeros((B, Q), bool))
    no_keys = call.but(
        key=call.key[:, :, :0], value=call.value[:, :, :0], visibility=none, dropout=None, bias=None, encoding="bool"
    )
    with pytest.raises(CallError, match="keys = 0"):
        prepare(no_keys, "sanitize_then_zero_invalid_query")


def test_a_sentinel_for_rows_without_a_key_leaves_all_others_alone() -> None:
    call = padded_call(dropout=None)
    k_s, v_s = np.array([1.0, -1.0]), np.array([3.0, 0.0, -2.0])
    got = finished(prepare(call, "sentinel_key", sentinel=Sentinel(k_s, v_s, reach="rows_without_key")))
    wanted = exact(call)
    used = np.ones((B, 1, Q, 1), bool)
    used[1, :, 2:] = False
    assert same(np.where(used, got["output"], Fraction(0)), wanted["output"])
    # An unused row copies the sentinel: a singleton.
    assert (got["output"][1, :, 2:] == v_s).all()
    for name in ("grad_key", "grad_value", "grad_bias", "grad_query"):
        assert same(got[name], wanted[name]), name
    # Only unused rows read it, with weight one: its value gets their output gradients, its key none.
    assert call.grad_output is not None
    assert (got["grad_sentinel_value"][1, 0, 0] == call.grad_output[1, :, 2:].sum(axis=(0, 1))).all()
    assert not got["grad_sentinel_value"][0].any()
    assert not got["grad_sentinel_key"].any()


def test_a_sentinel_for_every_query_is_one_more_key_and_learns() -> None:
    call = padded_call()
    sentinel = Sentinel(np.array([1.0, 1.0]), np.array([1.0, 2.0, 3.0]))
    prepared = prepare(call, "sentinel_key", sentinel=sentinel)
    assert prepared.kernel_call.axes.keys == K + 1
    assert prepared.kernel_call.visible[..., K].all()
    assert prepared.kernel_call.multiplier is not None
    assert (prepared.kernel_call.multiplier[..., K] == 1).all()
    got = finished(prepared)
    shapes = {name: t.shape for name, t in got.items()}
    assert shapes["grad_key"] == call.key.shape
    assert shapes["grad_sentinel_value"] == (B, 1, 1, DV)
    assert shapes["grad_bias"] == (B, 1, 1, K)
    assert got["grad_sentinel_key"].any()
    # The mass that the sentinel takes is missing from the others.
    assert not same(got["output"][0], exact(call)["output"][0])


def test_a_bias_for_the_whole_row_does_not_reach_the_sentinel() -> None:
    call = padded_call(bias=np.full((B, 1, Q, 1), 2.0), dropout=None)
    prepared = prepare(call, "sentinel_key", sentinel=Sentinel(np.zeros(DK), np.ones(DV)))
    assert prepared.kernel_call.bias is not None
    assert (prepared.kernel_call.bias[..., K] == 0).all()
    assert finished(prepared)["grad_bias"].shape == (B, 1, Q, 1)


def test_a_contract_is_checked_and_has_a_reference() -> None:
    call = padded_call(dropout=None)
    empty = ~call.visible.any(-1)
    zeros = prepare(call, "tested_backend_contract", contract=Contract("reference"))
    assert zeros.call.backend.requested == "reference"
    assert same(zeros.finish(exact(call))["output"], exact(call)["output"])
    with pytest.raises(CallError, match="was tested to return zeros there"):
        zeros.finish({"output": np.ones((B, H, Q, DV))})
    with pytest.raises(CallError, match="has no gradient of its own"):
        prepare(call, "tested_backend_contract", contract=Contract("old-kernel", "mean_of_values"))
    assert call.grad_output is not None
    quiet = call.but(grad_output=np.where(empty[..., None], 0.0, call.grad_output))
    mean = Contract("old-kernel", "mean_of_values")
    prepare(quiet, "tested_backend_contract", contract=mean)
    reference = contract_reference(quiet, mean)
    assert reference is not None
    means = exact(reference)["output"][1, :, 2:]
    assert (means == np.array([[Fraction(int(call.value[1, 0, :, c].sum()), K) for c in range(DV)]] * 2)).all()
    nan = Contract("older-kernel", "nan")
    assert contract_reference(quiet, nan) is None
    with pytest.raises(CallError, match="is not NaN"):
        prepare(quiet, "tested_backend_contract", contract=nan).finish({"output": np.zeros((B, H, Q, DV))})


def test_every_policy_is_known_and_no_other() -> None:
    assert set(EMPTY_ROW_POLICIES) | {"sentinel_key"} == set(POLICIES)
    call = padded_call()
    with pytest.raises(CallError, match="policy = 'ignore': expected one of reject"):
        prepare(call, "ignore")
    with pytest.raises(CallError, match="a sentinel is given with 'sentinel_key'"):
        prepare(call, "sentinel_key")
    with pytest.raises(CallError, match="a contract is given with"):
        prepare(call, "zero", contract=Contract("x"))
    with pytest.raises(CallError, match=r"contract.behaviour = 'ones'"):
        prepare(call, "tested_backend_contract", contract=Contract("x", "ones"))
    with pytest.raises(CallError, match=r"sentinel.reach = 'some'"):
        prepare(call, "sentinel_key", sentinel=Sentinel(np.zeros(DK), np.zeros(DV), "some"))
    with pytest.raises(CallError, match=r"sentinel.key has shape \[3\]"):
        prepare(call, "sentinel_key", sentinel=Sentinel(np.zeros(3), np.zeros(DV)))


def test_the_call_itself_carries_its_policy_through_json() -> None:
    call = padded_call()
    for policy in EMPTY_ROW_POLICIES[2:]:
        v = Visibility(call.visibility.mask, call.visibility.query_valid, policy)
        told = call.but(visibility=v, backend=Backend("some kernel"))
        assert call_from_json(call_to_json(told)).visibility.empty_rows == policy
    with pytest.raises(CallError, match="names the backend it was tested on"):
        call.but(visibility=Visibility(call.visibility.mask, None, "tested_backend_contract"))
    with pytest.raises(CallError, match="is a real query and sees no key"):
        call.but(visibility=Visibility(call.visibility.mask, None, "sanitize_then_zero_invalid_query"))
