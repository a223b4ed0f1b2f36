"""What becomes of a query that sees no key: five policies, each with its forward and its gradients.

`prepare` turns a call into the one a kernel sees, and says how the kernel's results become those of the call:

    reject                            no row may be empty; nothing changes
    zero                              the kernel itself returns zeros, zero gradients and LSE -inf
    sanitize_then_zero_invalid_query  an unused row gets a temporary key; its output and gradients are zeroed
    sentinel_key                      a key of the model's own is appended; unused rows read it, and it learns
    tested_backend_contract           the kernel does what it was tested to do; the result is held to that

Key validity (which columns may be read) and query validity (which rows are used) are separate objects. Under no
policy does a temporary or sentinel key make a real query legal that sees no key of its own.
Lean: AttnProofs.empty_row_output_zero, AttnProofs.unused_rows_leave_no_trace, AttnProofs.queries_independent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from attnspec.pyspec.calls.call import AttentionCall, Backend, CallError, Visibility

POLICIES = ("reject", "zero", "sanitize_then_zero_invalid_query", "sentinel_key", "tested_backend_contract")
REACHES = ("every_query", "rows_without_key")

Tensors = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Sentinel:
    """A key and value of the model's own, [Dk] and [Dv] or [B, Hkv, 1, Dk] and [B, Hkv, 1, Dv].

    reach: "every_query" lets all queries read it beside their own keys; "rows_without_key" only those that see
    nothing else, so that all other rows are left alone.
    """

    key: np.ndarray
    value: np.ndarray
    reach: str = "every_query"


@dataclass(frozen=True)
class Contract:
    """What a named backend was tested to return on empty rows.

    behaviour: "zeros" (output, gradients; LSE -inf), "mean_of_values" (as with equal scores over all keys) or "nan".
    Gradients are part of "zeros" only: under the others the output gradient of an empty row must be zero.
    """

    backend: str
    behaviour: str = "zeros"


BEHAVIOURS = ("zeros", "mean_of_values", "nan")


@dataclass(frozen=True, eq=False)
class Prepared:
    """A call under a policy: `kernel_call` is what the kernel sees, `finish` makes its tensors those of the call."""

    policy: str
    call: AttentionCall
    kernel_call: AttentionCall
    finish: Callable[[Tensors], dict[str, np.ndarray]]


def real_queries(call: AttentionCall) -> np.ndarray:
    """[B, Q] boolean: queries whose output will be used."""
    valid = call.visibility.query_valid
    return np.ones((call.axes.batch, call.axes.queries), dtype=bool) if valid is None else valid


def rows_without_key(call: AttentionCall) -> np.ndarray:
    """[B, Hq, Q] boolean: rows to which the mask shows no key, whether or not the query is real."""
    return np.logical_not(np.broadcast_to(call.visibility.mask, call.score_shape).any(axis=-1))


def prepare(
    call: AttentionCall,
    policy: str | None = None,
    *,
    sentinel: Sentinel | None = None,
    contract: Contract | None = None,
) -> Prepared:
    """The call under a policy (default: its own). Raises CallError where the policy forbids the call."""
    policy = call.visibility.empty_rows if policy is None else policy
    if policy not in POLICIES:
        raise CallError(f"policy = {policy!r}: expected one of {', '.join(POLICIES)}")
    if (sentinel is None) == (policy == "sentinel_key"):
        raise CallError(f"policy = {policy!r}: a sentinel is given with 'sentinel_key' and with no other")
    if (contract is None) == (policy == "tested_backend_contract"):
        raise CallError(f"policy = {policy!r}: a contract is given with 'tested_backend_contract' and with no other")
    if sentinel is not None:
        return _with_sentinel(call, sentinel)
    if contract is not None:
        return _under_contract(call, contract)
    if policy == "sanitize_then_zero_invalid_query":
        return _sanitized(call)
    plain = call.but(visibility=replace(call.visibility, empty_rows=policy))
    return Prepared(policy, plain, plain, dict)


def _told_by_mask(call: AttentionCall) -> str:
    return "additive" if call.bias is not None or call.encoding == "additive" else "bool"


def _sanitized(call: AttentionCall) -> Prepared:
    """An unused row borrows key 0 for the softmax; what comes of it is thrown away, forward and backward."""
    policy = "sanitize_then_zero_invalid_query"
    call = call.but(visibility=replace(call.visibility, empty_rows=policy))
    real, lost = real_queries(call), rows_without_key(call)
    if lost.any() and call.axes.keys == 0:
        raise CallError("keys = 0: there is no key to lend to an unused query; leave the call out")
    mask = np.array(np.broadcast_to(call.visibility.mask, call.score_shape))
    mask[..., :1] |= lost[..., None]
    used = real[:, None, :, None]
    kernel_call = call.but(
        visibility=Visibility(mask, None, "reject"),
        encoding=_told_by_mask(call),
        grad_output=None if call.grad_output is None else np.where(used, call.grad_output, 0.0),
    )

    def finish(tensors: Tensors) -> dict[str, np.ndarray]:
        done = dict(tensors)
        for name in ("output", "grad_query"):
            if name in done:
                done[name] = np.where(used, done[name], 0.0)
        if "lse" in done:
            done["lse"] = np.where(used[..., 0], done["lse"], -np.inf)
        return done

    return Prepared(policy, call, kernel_call, finish)


def _with_sentinel(call: AttentionCall, sentinel: Sentinel) -> Prepared:
    """The key is appended behind all others, with bias 0, and is never dropped."""
    if sentinel.reach not in REACHES:
        raise CallError(f"sentinel.reach = {sentinel.reach!r}: expected one of {', '.join(REACHES)}")
    lost = rows_without_key(call)
    real = real_queries(call)[:, None, :]
    if (lost & real).any():
        b, h, i = (int(n) for n in np.argwhere(lost & real)[0])
        raise CallError(
            f"row [batch {b}, head {h}, query {i}] is a real query and sees no key: a sentinel key never makes it "
            "legal; show it a key, or mark it in visibility.query_valid as not real"
        )
    # An unused query that sees keys of its own is computed like any other.
    call = call.but(visibility=Visibility(call.visibility.mask), encoding=_told_by_mask(call))
    a = call.axes
    reads = np.ones_like(lost) if sentinel.reach == "every_query" else lost
    mask = np.concatenate([np.broadcast_to(call.visibility.mask, call.score_shape), reads[..., None]], axis=-1)

    def behind(field: str, own: np.ndarray, more: np.ndarray, width: int) -> np.ndarray:
        more = np.asarray(more, dtype=np.float64)
        if more.shape not in ((width,), (a.batch, a.key_heads, 1, width)):
            raise CallError(
                f"sentinel.{field} has shape {list(more.shape)}: expected [{width}] or one for each key head"
            )
        return np.concatenate([own, np.broadcast_to(more, (a.batch, a.key_heads, 1, width))], axis=2)

    def column(x: np.ndarray, of_sentinel: float) -> np.ndarray:
        whole = np.broadcast_to(x, (*x.shape[:3], a.keys))
        return np.concatenate([whole, np.full((*x.shape[:3], 1), of_sentinel)], axis=3)

    drop = call.dropout
    kernel_call = call.but(
        key=behind("key", call.key, sentinel.key, a.key_width),
        value=behind("value", call.value, sentinel.value, a.value_width),
        bias=None if call.bias is None else column(call.bias, 0.0),
        dropout=None if drop is None else replace(drop, multiplier=column(drop.multiplier, 1.0)),
        visibility=Visibility(mask, None, "reject"),
        encoding=_told_by_mask(call),
    )

    def finish(tensors: Tensors) -> dict[str, np.ndarray]:
        done = dict(tensors)
        for name in ("key", "value"):
            if f"grad_{name}" in done:
                whole = done[f"grad_{name}"]
                done[f"grad_{name}"], done[f"grad_sentinel_{name}"] = whole[:, :, : a.keys], whole[:, :, a.keys :]
        if "grad_bias" in done and call.bias is not None:
            own = done["grad_bias"][..., : a.keys]
            done["grad_bias"] = own if call.bias.shape[3] == a.keys else own.sum(axis=3, keepdims=True)
        return done

    return Prepared("sentinel_key", call, kernel_call, finish)


def _under_contract(call: AttentionCall, contract: Contract) -> Prepared:
    if contract.behaviour not in BEHAVIOURS:
        raise CallError(f"contract.behaviour = {contract.behaviour!r}: expected one of {', '.join(BEHAVIOURS)}")
    empty = ~call.visible.any(axis=-1)
    if contract.behaviour != "zeros" and call.grad_output is not None and call.grad_output[empty].any():
        raise CallError(
            f"grad_output is not zero on a row without a key: {contract.backend} was tested to return "
            f"{contract.behaviour} there, which has no gradient of its own; zero the output gradient of unused rows"
        )
    policy = "tested_backend_contract"
    call = call.but(
        visibility=replace(call.visibility, empty_rows=policy),
        backend=Backend(contract.backend, call.backend.observed, call.backend.materialised_weights),
    )

    def finish(tensors: Tensors) -> dict[str, np.ndarray]:
        found = tensors["output"][empty]
        if contract.behaviour == "zeros" and found.any():
            wrong = "is not zero"
        elif contract.behaviour == "nan" and not np.isnan(found).all():
            wrong = "is not NaN"
        elif contract.behaviour == "mean_of_values" and not np.isfinite(found).all():
            wrong = "is not finite"
        else:
            return dict(tensors)
        raise CallError(
            f"output of a row without a key {wrong}: {contract.backend} was tested to return {contract.behaviour} "
            "there; test it again, and record what it does"
        )

    return Prepared(policy, call, call, finish)


def contract_reference(call: AttentionCall, contract: Contract) -> AttentionCall | None:
    """A call whose exact output is what the contract says of this one; None where that is no number (NaN).

    Under "mean_of_values" an empty row is a row of equal scores over all keys.
    """
    if contract.behaviour == "nan":
        return None
    plain = call.but(visibility=replace(call.visibility, empty_rows="zero"))
    if contract.behaviour == "zeros":
        return plain
    empty = ~plain.visible.any(axis=-1, keepdims=True)
    bias = None if plain.bias is None else np.where(empty, 0.0, np.broadcast_to(plain.bias, plain.score_shape))
    return plain.but(
        query=np.where(empty, 0.0, plain.query),
        bias=bias,
        visibility=Visibility(plain.visible | empty),
        encoding=_told_by_mask(plain),
    )
