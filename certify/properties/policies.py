"""What holds of the policies for queries that see no key: what a kernel is given, and what becomes of its results."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attnspec.certify.claims import Capabilities, requires
from attnspec.certify.trials.contracts import NotANumber
from attnspec.certify.trials.property import Trials, claim
from attnspec.certify.trials.run import ROWWISE
from attnspec.certify.trials.trial import IndexMap, Trial
from attnspec.pyspec import AttentionCall, CallError, Visibility
from attnspec.pyspec.calls.masks.policies import (
    Contract,
    Prepared,
    Sentinel,
    contract_reference,
    prepare,
    real_queries,
    rows_without_key,
)
from attnspec.strategies.derived import call_rng, take_queries, with_mask


def _unused_queries(call: AttentionCall) -> AttentionCall | None:
    """Some queries of each batch row are not real; most of those see no key, all others see one."""
    a = call.axes
    if 0 in call.score_shape or a.queries < 2:
        return None
    rng = call_rng(call, "unused queries")
    real = rng.random((a.batch, a.queries)) < 0.6
    real[:, int(rng.integers(a.queries))] = False
    real[:, int(rng.integers(a.queries))] = True
    blind = ~real & (rng.random((a.batch, a.queries)) < 0.8)
    mask = np.array(np.broadcast_to(call.visibility.mask, call.score_shape))
    lost = ~mask.any(axis=-1)
    mask[..., int(rng.integers(a.keys))] |= lost
    mask &= ~blind[:, None, :, None]
    v = Visibility(mask, real)
    return with_mask(call, mask).but(visibility=v)


@claim(
    "policy-reject",
    "Under 'reject' no row without a key reaches the subject, and the other rows come out the same.",
    theorem="queries_independent",
    prepare=_unused_queries,
    needs=requires("masks"),
    small=True,
)
def policy_reject(call: AttentionCall) -> Trials:
    empty = np.logical_not(call.visible.any(axis=-1))
    kept = np.flatnonzero(~empty.any(axis=(0, 1)))
    if kept.size == 0:
        return "every query is without a key in some head"
    rest = take_queries(call, kept)
    rest = rest.but(visibility=replace(rest.visibility, empty_rows="reject"))
    yield Trial(rest, against=call, views=dict.fromkeys(ROWWISE, ((2, kept),)), tensors=ROWWISE)


@claim(
    "policy-sanitize",
    "Unused queries that borrow a key before the softmax and are zeroed after it leave no trace.",
    theorem="unused_rows_leave_no_trace",
    also=("empty_row_output_zero", "empty_row_gradient_zero", "queries_independent"),
    prepare=_unused_queries,
    needs=requires("masks"),
    small=True,
)
def policy_sanitize(call: AttentionCall) -> Trials:
    try:
        prepared = prepare(call, "sanitize_then_zero_invalid_query")
    except CallError as error:
        return str(error)
    yield Trial(prepared.kernel_call)
    # The rows of unused queries are thrown away: what is left is that of the call.
    used = real_queries(prepared.call)[:, None, :, None]
    where = {"output": used, "grad_query": used, "lse": used[..., 0]}
    yield Trial(prepared.kernel_call, against=prepared.call, where=where)


@claim(
    "policy-sentinel-key",
    "A sentinel key is one more key; where only unused queries read it, all others stay as they are.",
    theorem="locality_forward",
    also=("locality_backward", "singleton_copies_value"),
    prepare=_unused_queries,
    needs=requires("masks"),
    small=True,
)
def policy_sentinel_key(call: AttentionCall) -> Trials:
    a, rng = call.axes, call_rng(call, "sentinel")
    key, value = (rng.integers(-2, 3, n).astype(np.float64) for n in (a.key_width, a.value_width))
    try:
        for_unused = prepare(call, "sentinel_key", sentinel=Sentinel(key, value, reach="rows_without_key"))
        for_all = prepare(call, "sentinel_key", sentinel=Sentinel(key, value))
    except CallError as error:
        return str(error)
    yield Trial(for_unused.kernel_call)
    yield _beside_sentinel(for_unused)
    yield Trial(for_all.kernel_call)


def _beside_sentinel(prepared: Prepared) -> Trial:
    """All but what is the sentinel's: what an unused row reads there, and the sentinel's own gradients."""
    call, keys = prepared.call, prepared.call.axes.keys
    own = np.arange(keys + 1) < keys
    column = np.minimum(np.arange(keys + 1), keys - 1)
    others = ~rows_without_key(call)
    where = {"output": others[..., None], "lse": others, "grad_key": own[:, None], "grad_value": own[:, None]}
    views: dict[str, IndexMap] = {"grad_key": ((2, column),), "grad_value": ((2, column),)}
    tensors = [*ROWWISE, "grad_key", "grad_value"]
    if call.bias is not None and call.bias.shape[3] == keys:
        where["grad_bias"], views["grad_bias"] = own, ((3, column),)
        tensors.append("grad_bias")
    return Trial(prepared.kernel_call, against=call, tensors=tuple(tensors), where=where, views=views)


def declared_contract(c: Capabilities) -> str | None:
    """What a subject says of rows without a key: zeros where it claims them, else the contract that it names."""
    return "zeros" if c.empty_rows else c.empty_row_contract


@claim(
    "policy-backend-contract",
    "A row without a key comes out as the subject's own contract says, with gradients and without.",
    theorem="empty_row_output_zero",
    also=("equal_scores_average_values",),
    prepare=_unused_queries,
    needs=requires("masks", "empty_row_rule"),
    small=True,
    within_claim=False,
)
def policy_backend_contract(call: AttentionCall, claims: Capabilities) -> Trials:
    declared = declared_contract(claims)
    assert declared is not None
    contract = Contract("the subject", declared)
    empty = np.logical_not(call.visible.any(axis=-1))[..., None]
    if not empty.any() or call.axes.keys == 0:
        return "no row without a key, or no keys at all"
    # The contract is what makes these calls part of the claim.
    claimed = with_mask(call, call.visible | empty)
    for asked in (call, call.but(grad_output=None)):
        try:
            prepared = prepare(_without_gradient(asked, contract), "tested_backend_contract", contract=contract)
        except CallError as error:
            return str(error)
        run, exact = prepared.kernel_call, contract_reference(prepared.call, contract)
        if exact is None:
            yield Trial(run, claimed_as=claimed, tensors=(), expect=(NotANumber("output", empty),))
        else:
            yield Trial(
                run, claimed_as=claimed, against=exact, bounds_of=exact, tensors=("output",), where={"output": empty}
            )


def _without_gradient(call: AttentionCall, contract: Contract) -> AttentionCall:
    """No output gradient into empty rows, where the contract gives them none."""
    if contract.behaviour == "zeros" or call.grad_output is None:
        return call
    return call.but(grad_output=np.where(call.visible.any(axis=-1, keepdims=True), call.grad_output, 0.0))
