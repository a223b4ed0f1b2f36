"""What holds of the policies for queries that see no key: what a kernel is given, and what becomes of its results."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attnspec.certify.properties import needs
from attnspec.certify.properties.agree import agree, compare, expected_tensors, failure, joined, observed
from attnspec.certify.properties.model import Bench, Outcome, Property, call_rng, register
from attnspec.certify.properties.surgery import take_queries, with_mask
from attnspec.certify.subjects.claims import Capabilities, requires
from attnspec.pyspec import AttentionCall, CallError, Visibility
from attnspec.pyspec.calls.masks.policies import (
    Contract,
    Prepared,
    Sentinel,
    contract_reference,
    prepare,
    rows_without_key,
)


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


def _run(prepared: Prepared, bench: Bench) -> Outcome:
    """The kernel's call agrees by itself, and what the policy makes of its results are those of the call."""
    kernel_call = prepared.kernel_call
    direct = agree(kernel_call, bench)
    if direct.skipped is not None or direct.broken is not None:
        return direct
    seen = observed(kernel_call, bench)
    done, bounds = prepared.finish(seen.tensors), bench.bounds(kernel_call)
    keys, rows = prepared.call.axes.keys, rows_without_key(prepared.call)
    oracle = bench.oracle(prepared.call)
    judged = []
    for name in expected_tensors(prepared.call, bench):
        allowed = bounds[name]
        if prepared.policy == "sentinel_key":
            if name in ("output", "lse"):
                # An unused row reads the sentinel: what it holds is the model's business.
                allowed = np.where(rows[..., None] if name == "output" else rows, np.inf, allowed)
            elif name in ("grad_key", "grad_value"):
                allowed = allowed[:, :, :keys]
            elif name == "grad_bias":
                allowed = allowed[..., :keys]
                if allowed.shape != done[name].shape:
                    continue
        elif name == "output":
            allowed = np.where(rows[..., None], 0.0, allowed)
        judged.append(oracle.judge(name, done[name], allowed))
    return joined(direct, Outcome(judgements=tuple(judged), kernel=seen.kernel))


def _sanitized(call: AttentionCall, bench: Bench) -> Outcome:
    try:
        prepared = prepare(call, "sanitize_then_zero_invalid_query")
    except CallError as error:
        return Outcome(skipped=str(error))
    return _run(prepared, bench)


def _with_sentinel(call: AttentionCall, bench: Bench) -> Outcome:
    a, rng = call.axes, call_rng(call, "sentinel")
    key, value = (rng.integers(-2, 3, n).astype(np.float64) for n in (a.key_width, a.value_width))
    try:
        quiet = prepare(call, "sentinel_key", sentinel=Sentinel(key, value, reach="rows_without_key"))
        loud = prepare(call, "sentinel_key", sentinel=Sentinel(key, value))
    except CallError as error:
        return Outcome(skipped=str(error))
    return joined(_run(quiet, bench), agree(loud.kernel_call, bench))


def _rejected(call: AttentionCall, bench: Bench) -> Outcome:
    """Empty rows never reach the subject; what is left without them comes out the same."""
    empty = np.logical_not(call.visible.any(axis=-1))
    kept = np.flatnonzero(~empty.any(axis=(0, 1)))
    if kept.size == 0:
        return Outcome(skipped="every query is blind in some head")
    if empty.any():
        try:
            call.but(visibility=replace(call.visibility, empty_rows="reject"))
        except CallError:
            pass
        else:
            return Outcome(broken="a call with an empty row was accepted under the policy 'reject'")
    rest = take_queries(call, kept)
    rest = rest.but(visibility=replace(rest.visibility, empty_rows="reject"))
    views = {name: (lambda t: t[:, :, kept]) for name in ("output", "lse", "grad_query")}
    return agree(rest, bench, tensors=tuple(views), against=call, views=views)


def declared_contract(c: Capabilities) -> str | None:
    """What a subject says of rows without a key: zeros where it claims them, else the contract that it names."""
    return "zeros" if c.empty_rows else c.empty_row_contract


def _contracted(call: AttentionCall, bench: Bench) -> Outcome:
    """Empty rows come out as the subject's own contract says, with gradients and without."""
    declared = declared_contract(bench.subject.capabilities)
    if declared is None:
        return Outcome(skipped="the subject declares nothing about empty rows")
    contract = Contract(bench.subject.name, declared)
    # The contract is what makes these calls part of the claim.
    covered = bench.uncovered(_without_empty_rows(call))
    empty = np.logical_not(call.visible.any(axis=-1))
    if covered is not None or not empty.any() or call.axes.keys == 0:
        return Outcome(skipped=covered or "no row without a key, or no keys at all")
    outcomes = []
    for told in (call, call.but(grad_output=None)):
        try:
            prepared = prepare(_quiet(told, contract), "tested_backend_contract", contract=contract)
        except CallError as error:
            return Outcome(skipped=str(error))
        seen = bench.observe(prepared.kernel_call)
        broken = failure(seen, prepared.kernel_call, bench)
        if broken is not None:
            return Outcome(broken=broken)
        reference = contract_reference(prepared.call, contract)
        found = seen.tensors["output"]
        if reference is None:
            wanted = np.where(empty[..., None], np.nan, found)
            same = np.where(np.isnan(wanted) & np.isnan(found), 0.0, np.where(np.isnan(wanted), np.inf, 0.0))
            outcomes.append(Outcome(judgements=(compare("output", same, np.zeros_like(same), np.zeros_like(same)),)))
            continue
        allowed = np.where(empty[..., None], bench.bounds(reference)["output"], np.inf)
        outcomes.append(Outcome(judgements=(bench.oracle(reference).judge("output", found, allowed),)))
    return joined(*outcomes)


def _quiet(call: AttentionCall, contract: Contract) -> AttentionCall:
    """No output gradient into empty rows, where the contract gives them none."""
    if contract.behaviour == "zeros" or call.grad_output is None:
        return call
    return call.but(grad_output=np.where(call.visible.any(axis=-1, keepdims=True), call.grad_output, 0.0))


def _without_empty_rows(call: AttentionCall) -> AttentionCall:
    return with_mask(call, call.visible | ~call.visible.any(axis=-1, keepdims=True))


register(
    Property(
        id="policy-reject",
        claim="Under 'reject' no row without a key reaches the subject, and the other rows come out the same.",
        theorem="queries_independent",
        check=_rejected,
        prepare=_unused_queries,
        needs=needs.masks,
        small=True,
    )
)
register(
    Property(
        id="policy-sanitize",
        claim="Unused queries that borrow a key before the softmax and are zeroed after it leave no trace.",
        theorem="unused_rows_leave_no_trace",
        check=_sanitized,
        prepare=_unused_queries,
        needs=needs.masks,
        small=True,
        also=("empty_row_output_zero", "empty_row_gradient_zero", "queries_independent"),
    )
)
register(
    Property(
        id="policy-sentinel-key",
        claim="A sentinel key is one more key; where only unused queries read it, all others stay as they are.",
        theorem="locality_forward",
        check=_with_sentinel,
        prepare=_unused_queries,
        needs=needs.masks,
        small=True,
        also=("locality_backward", "singleton_copies_value"),
    )
)
register(
    Property(
        id="policy-backend-contract",
        claim="A row without a key comes out as the subject's own contract says, with gradients and without.",
        theorem="empty_row_output_zero",
        check=_contracted,
        prepare=_unused_queries,
        needs=requires("masks", "empty_row_rule"),
        small=True,
        also=("equal_scores_average_values",),
    )
)
