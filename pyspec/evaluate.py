"""Evaluate a call in a domain: all heads at once, grouped heads gathered and summed back."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from attnspec.pyspec import alibi, attention, sink
from attnspec.pyspec.attention import Inputs, Params
from attnspec.pyspec.calls.call import AttentionCall, CallError
from attnspec.pyspec.domain import Domain
from attnspec.pyspec.heads import group_sum, repeat
from attnspec.pyspec.scores import lift_parameters, score_of

M = TypeVar("M")

TENSORS = ("output", "lse", "grad_query", "grad_key", "grad_value", "grad_bias", "grad_sink", "grad_slopes")


def lift_call(dom: Domain[M], call: AttentionCall, away: np.ndarray | None = None) -> tuple[Params[M], Inputs[M]]:
    """The call as the spec's parameters and inputs, key/value heads repeated by the head map.

    away: distances [Q,K] for ALiBi slopes, where they are not those of the call. A call with a sink is reduced first
    (attnspec.pyspec.sink.extended): a CallError says so.
    """
    if call.sink is not None:
        raise CallError("sink: the spec's inputs have none; reduce the call first with attnspec.pyspec.sink.extended")
    z = call.multiplier
    params = Params(
        scale=call.scale_value,
        visible=call.visible,
        multiplier=None if z is None else dom.lift(z),
        softcap=call.softcap,
        score=score_of(call),
        away=_away(call) if away is None else away,
    )
    given = {n: getattr(call, n) for n in ("query", "key", "value", "bias", "slopes")} | call.score.parameters()
    return params, _lift_inputs(dom, call, given)


def _lift_inputs(dom: Domain[M], call: AttentionCall, given: dict[str, np.ndarray]) -> Inputs[M]:
    """Inputs, or tangents of them, by name; bias and slopes may be missing or None."""
    bias, slopes = given.get("bias"), given.get("slopes")
    return Inputs(
        query=dom.lift(given["query"]),
        key=repeat(dom, call.head_map, dom.lift(given["key"])),
        value=repeat(dom, call.head_map, dom.lift(given["value"])),
        bias=None if bias is None else dom.lift(np.broadcast_to(bias, call.score_shape)),
        parameters=lift_parameters(dom, {n: given[n] for n in call.score.parameters()}),
        slopes=None if slopes is None else dom.lift(slopes[None, :, None, None]),
    )


def _away(call: AttentionCall) -> np.ndarray | None:
    """Distances for the call's slopes [Q,K]; the key that stands for a sink is at no distance."""
    if call.slopes is None:
        return None
    away = alibi.distances(call.axes.queries, call.axes.keys)
    return away if call.sink is None else np.pad(away, ((0, 0), (0, 1)))


def evaluate(dom: Domain[M], call: AttentionCall, *, with_lse: bool = True) -> dict[str, M]:
    """Every tensor that the spec defines for this call, by name.

    Those of `TENSORS`: output [B,Hq,Q,Dv], lse [B,Hq,Q], and when the call has a grad_output the gradients in the
    shapes of query, key, value, bias, sink and slopes, and one a parameter of the score family, such as grad_metric, in
    the parameter's shape. "weights" [B,Hq,Q,K], before or after dropout, when the call's dropout asks for them.
    Lean: AttnSpec.forward, AttnSpec.backward, per head.
    """
    if call.sink is None:
        found = _whole(dom, call, with_lse=with_lse)
    else:
        whole = _whole(dom, sink.extended(call), with_lse=with_lse, away=_away(call))
        found = sink.restored(dom, call, whole)
    if "grad_bias" in found and call.bias is not None:
        found["grad_bias"] = _summed(dom, found["grad_bias"], call.bias.shape, call.score_shape)
    elif "grad_bias" in found:
        # That of the sink's extension, whose bias is a column of logits beside zeros.
        del found["grad_bias"]
    if "grad_sink" in found:
        batch, heads, queries, _ = call.score_shape
        column = _summed(dom, found["grad_sink"], (1, heads, 1, 1), (batch, heads, queries, 1))
        found["grad_sink"] = dom.reshape(column, (heads,))
    return found


def _whole(dom: Domain[M], call: AttentionCall, *, with_lse: bool, away: np.ndarray | None = None) -> dict[str, M]:
    """Every tensor of a call without a sink; the gradient of a bias, where there is one, is [B,Hq,Q,K] still."""
    params, inputs = lift_call(dom, call, away)
    grad_output = None if call.grad_output is None else dom.lift(call.grad_output)
    result = attention.evaluate(dom, params, inputs, grad_output, with_lse=with_lse)
    tensors: dict[str, M] = {"output": result.output}
    if result.lse is not None:
        tensors["lse"] = dom.reshape(result.lse, call.score_shape[:3])
    if call.dropout is not None and call.dropout.returned_weights != "none":
        before = call.dropout.returned_weights == "before_dropout"
        tensors["weights"] = result.weights if before else result.consumed
    if result.gradient is not None:
        tensors.update(_gradients(dom, call, result.gradient))
    return tensors


def _gradients(dom: Domain[M], call: AttentionCall, grad: Inputs[M]) -> dict[str, M]:
    tensors = {"grad_query": grad.query}
    for name, shape in (("key", call.key.shape), ("value", call.value.shape)):
        zero = dom.lift(np.zeros((shape[0], 1, *shape[2:])))
        stage = f"grad_{name}"
        tensors[stage] = group_sum(dom, stage, call.head_map, shape[1], getattr(grad, name), zero)
    for name, parameter in call.score.parameters().items():
        tensors[f"grad_{name}"] = dom.reshape(grad.parameters[name], parameter.shape)
    if call.bias is not None:
        assert grad.bias is not None
        tensors["grad_bias"] = dom.settle("grad_bias", grad.bias)
    if grad.slopes is not None:
        tensors["grad_slopes"] = dom.reshape(grad.slopes, (call.axes.query_heads,))
    return tensors


def _summed(dom: Domain[M], whole: M, kept: tuple[int, ...], shape: tuple[int, ...]) -> M:
    """A gradient of that shape summed over the axes that are stored with length 1."""
    for axis, (n, full) in enumerate(zip(kept, shape, strict=True)):
        if n == 1 and full != 1:
            whole = dom.sum_axis("grad_bias", whole, axis)
    return whole


def evaluate_jvp(
    dom: Domain[M], call: AttentionCall, tangent: dict[str, np.ndarray], away: np.ndarray | None = None
) -> M:
    """Directional derivative of the output [B,Hq,Q,Dv] along tangents named query, key, value, bias, sink, slopes.

    Tangents of the score family's parameters have the parameters' names and shapes. Missing ones are zero.
    Lean: AttnSpec.jvp.
    """
    if call.sink is not None:
        return evaluate_jvp(dom, sink.extended(call), sink.extended_tangent(call, tangent), _away(call))
    params, inputs = lift_call(dom, call, away)
    given = {n: getattr(call, n) for n in ("query", "key", "value")} | call.score.parameters()
    zeros = {n: np.zeros_like(a) for n, a in given.items()}
    return attention.jvp(dom, params, inputs, _lift_inputs(dom, call, zeros | tangent))
