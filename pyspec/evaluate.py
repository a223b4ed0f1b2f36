"""Evaluate a call in a domain: all heads at once, grouped heads gathered and summed back."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from attnspec.pyspec import attention, sink
from attnspec.pyspec.attention import Inputs, Params
from attnspec.pyspec.calls.call import AttentionCall, CallError
from attnspec.pyspec.domain import Domain
from attnspec.pyspec.heads import group_sum, repeat

M = TypeVar("M")

TENSORS = ("output", "lse", "grad_query", "grad_key", "grad_value", "grad_bias", "grad_sink")


def lift_call(dom: Domain[M], call: AttentionCall) -> tuple[Params[M], Inputs[M]]:
    """The call as the spec's parameters and inputs, key/value heads repeated by the head map.

    A call with a sink is reduced first (attnspec.pyspec.sink.extended): a CallError says so.
    """
    if call.sink is not None:
        raise CallError("sink: the spec's inputs have none; reduce the call first with attnspec.pyspec.sink.extended")
    z = call.multiplier
    bias = None if call.bias is None else np.broadcast_to(call.bias, call.score_shape)
    params = Params(
        scale=call.scale_value,
        visible=call.visible,
        multiplier=None if z is None else dom.lift(z),
        softcap=call.softcap,
    )
    inputs = Inputs(
        query=dom.lift(call.query),
        key=repeat(dom, call.head_map, dom.lift(call.key)),
        value=repeat(dom, call.head_map, dom.lift(call.value)),
        bias=None if bias is None else dom.lift(bias),
    )
    return params, inputs


def evaluate(dom: Domain[M], call: AttentionCall, *, with_lse: bool = True) -> dict[str, M]:
    """Every tensor that the spec defines for this call, by name (`TENSORS`).

    output [B,Hq,Q,Dv], lse [B,Hq,Q]-column, and when the call has a grad_output the gradients in the shapes
    of query, key, value and bias, and of the sink as [1,Hq,1,1]. Lean: AttnSpec.forward, AttnSpec.backward, per head.
    """
    if call.sink is not None:
        return sink.restored(dom, call, evaluate(dom, sink.extended(call), with_lse=with_lse))
    params, inputs = lift_call(dom, call)
    grad_output = None if call.grad_output is None else dom.lift(call.grad_output)
    result = attention.evaluate(dom, params, inputs, grad_output, with_lse=with_lse)
    tensors: dict[str, M] = {"output": result.output}
    if result.lse is not None:
        tensors["lse"] = result.lse
    if result.gradient is not None:
        tensors.update(_gradients(dom, call, result.gradient))
    return tensors


def _gradients(dom: Domain[M], call: AttentionCall, grad: Inputs[M]) -> dict[str, M]:
    tensors = {"grad_query": grad.query}
    for name, shape in (("key", call.key.shape), ("value", call.value.shape)):
        zero = dom.lift(np.zeros((shape[0], 1, *shape[2:])))
        stage = f"grad_{name}"
        tensors[stage] = group_sum(dom, stage, call.head_map, shape[1], getattr(grad, name), zero)
    if call.bias is not None:
        assert grad.bias is not None
        bias = dom.settle("grad_bias", grad.bias)
        tensors["grad_bias"] = sink.summed(dom, bias, call.bias.shape, call.score_shape)
    return tensors


def evaluate_jvp(dom: Domain[M], call: AttentionCall, tangent: dict[str, np.ndarray]) -> M:
    """Directional derivative of the output [B,Hq,Q,Dv] along tangents named query, key, value, bias, sink.

    Missing tangents are zero. Lean: AttnSpec.jvp.
    """
    if call.sink is not None:
        return evaluate_jvp(dom, sink.extended(call), sink.extended_tangent(call, tangent))
    params, inputs = lift_call(dom, call)
    zeros: dict[str, Any] = {n: np.zeros_like(getattr(call, n)) for n in ("query", "key", "value")}
    given = {**zeros, **tangent}
    bias = given.get("bias")
    dx = Inputs(
        query=dom.lift(given["query"]),
        key=repeat(dom, call.head_map, dom.lift(given["key"])),
        value=repeat(dom, call.head_map, dom.lift(given["value"])),
        bias=None if bias is None else dom.lift(np.broadcast_to(bias, call.score_shape)),
    )
    return attention.jvp(dom, params, inputs, dx)
