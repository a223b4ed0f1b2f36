"""Evaluate a call of any family in a domain, bound it under a ledger, and judge against it."""

from __future__ import annotations

from typing import Any

import numpy as np

from attnspec.pyspec import attention
from attnspec.pyspec.attention import Params
from attnspec.pyspec.calls.call import AttentionCall, CallError
from attnspec.pyspec.domain import Domain
from attnspec.pyspec.domains.ball import BallDomain, precision
from attnspec.pyspec.evaluate import lift_call
from attnspec.pyspec.families import ops
from attnspec.pyspec.families.kinds import Cosine, Family
from attnspec.pyspec.families.scores import Matrices, lift_parameters, score_jvp, scores, scores_backward
from attnspec.pyspec.heads import group_sum, repeat
from attnspec.pyspec.oracle.bound import BoundDomain
from attnspec.pyspec.oracle.bounded import Bounded
from attnspec.pyspec.oracle.judgement import Oracle
from attnspec.pyspec.oracle.ledger import NUMPY_FLOAT64, Ledger


def pair_inputs(dom: Domain[Any], call: AttentionCall) -> dict[str, Any]:
    """What the scores of the call are made of: query, key (heads repeated), and kinds of their lengths."""
    _, inputs = lift_call(dom, call)
    found: dict[str, Any] = {"query": inputs.query, "key": inputs.key}
    family = call.score
    if isinstance(family, Cosine):
        found["query_kinds"] = ops.lengths(call.query, family)
        found["key_kinds"] = ops.lengths(call.key[:, list(call.head_map)], family)
    return found


def _logits(dom: Domain[Any], params: Params[Any], bias: Any, u: Any) -> Any:
    if params.softcap is not None:
        raise CallError(f"softcap = {params.softcap!r}: only dot products are capped; leave it out of a family call")
    scaled = dom.times("scaled", params.scale, u)
    return scaled if bias is None else dom.add("biased", scaled, bias)


def evaluate_family(dom: Domain[Any], call: AttentionCall, *, with_lse: bool = True) -> dict[str, Any]:
    """Every tensor of the call by name: those of attnspec.pyspec.TENSORS, and grad_<parameter> for each parameter.

    s = α u + B, and from there on as in attnspec.pyspec.attention. A plain AttentionCall is one of the dot family.
    """
    family = call.score
    params, inputs = lift_call(dom, call)
    parameters, x = lift_parameters(dom, family), pair_inputs(dom, call)
    s = _logits(dom, params, inputs.bias, scores(dom, family, parameters, x))
    w = dom.softmax(params.visible, s)
    out = dom.output(attention.consumed(dom, params, w), inputs.value)
    tensors = {"output": out}
    if with_lse:
        tensors["lse"] = dom.lse(params.visible, s)
    if call.grad_output is None:
        return tensors
    grad_output = dom.lift(call.grad_output)
    w_back = dom.backward_weights(params.visible, s, w)
    c_back = dom.backward_consumed(attention.consumed(dom, params, w_back))
    gs = dom.scores_grad(w_back, attention.weights_grad(dom, params, inputs, grad_output), out, grad_output)
    grads = scores_backward(dom, family, parameters, x, dom.times("scaled_grad", params.scale, gs))
    tensors["grad_query"] = grads.pop("query")
    per_head = {"key": grads.pop("key"), "value": dom.t_mul("grad_value", c_back, grad_output)}
    for name, gradient in per_head.items():
        shape = getattr(call, name).shape
        zero = dom.lift(np.zeros((shape[0], 1, *shape[2:])))
        stage = f"grad_{name}"
        tensors[stage] = group_sum(dom, stage, call.head_map, shape[1], gradient, zero)
    for name, gradient in grads.items():
        tensors[f"grad_{name}"] = gradient
    if call.bias is not None:
        tensors["grad_bias"] = _bias_gradient(dom, call, gs)
    return tensors


def _bias_gradient(dom: Domain[Any], call: AttentionCall, gs: Any) -> Any:
    assert call.bias is not None
    bias = dom.settle("grad_bias", gs)
    for axis, (kept, whole) in enumerate(zip(call.bias.shape, call.score_shape, strict=True)):
        if kept == 1 and whole != 1:
            bias = dom.sum_axis("grad_bias", bias, axis)
    return bias


def evaluate_family_jvp(dom: Domain[Any], call: AttentionCall, tangent: dict[str, np.ndarray]) -> Any:
    """Directional derivative of the output along tangents named query, key, value, bias and by parameter.

    Missing tangents are zero; tangents of parameters have the parameter's own shape.
    """
    family = call.score
    params, inputs = lift_call(dom, call)
    parameters, x = lift_parameters(dom, family), pair_inputs(dom, call)
    dx = _tangents(dom, call, family, tangent)
    u = scores(dom, family, parameters, x)
    w = dom.softmax(params.visible, _logits(dom, params, inputs.bias, u))
    bias = tangent.get("bias")
    lifted = None if bias is None else dom.lift(np.broadcast_to(bias, call.score_shape))
    ds = _logits(dom, params, lifted, score_jvp(dom, family, parameters, x, dx))
    through_weights = dom.mul("output", attention.consumed(dom, params, dom.center(w, ds)), inputs.value)
    value = repeat(dom, call.head_map, dom.lift(tangent.get("value", np.zeros_like(call.value))))
    return dom.add("output", through_weights, dom.mul("output", attention.consumed(dom, params, w), value))


def _tangents(dom: Domain[Any], call: AttentionCall, family: Family, tangent: dict[str, np.ndarray]) -> Matrices:
    found = {
        "query": dom.lift(tangent.get("query", np.zeros_like(call.query))),
        "key": repeat(dom, call.head_map, dom.lift(tangent.get("key", np.zeros_like(call.key)))),
    }
    for name, array in family.parameters().items():
        d = tangent.get(name, np.zeros_like(array))
        found[name] = dom.lift(d[None] if d.ndim == 3 else d[None, :, None])
    return found


def _shaped(call: AttentionCall, name: str, a: np.ndarray) -> np.ndarray:
    """In the caller's frame: LSE without its column, a parameter's gradient in the parameter's shape."""
    if name == "lse":
        return a[..., 0]
    parameter = call.score.parameters().get(name.removeprefix("grad_"))
    return a if parameter is None else a.reshape(parameter.shape)


def family_bounds(call: AttentionCall, ledger: Ledger) -> dict[str, np.ndarray]:
    """Allowed absolute error of every tensor of the call under a ledger, derived as for dot products."""
    dom = BoundDomain(ledger)
    found: dict[str, Bounded] = evaluate_family(dom, call)
    return {n: _shaped(call, n, dom.lower(t)[1]) for n, t in found.items()}


class FamilyOracle(Oracle):
    """The oracle of a call of any family."""

    def fast(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Float64 values and rigorous errors by tensor."""
        if self._fast is None:
            dom = BoundDomain(NUMPY_FLOAT64)
            pairs = {n: dom.lower(t) for n, t in evaluate_family(dom, self.call).items()}
            self._fast = {
                n: (_shaped(self.call, n, value), _shaped(self.call, n, error)) for n, (value, error) in pairs.items()
            }
        return self._fast

    def balls(self, bits: int) -> dict[str, np.ndarray]:
        """Object arrays of enclosures by tensor, at that precision."""
        if bits not in self._balls:
            with precision(bits):
                found = evaluate_family(BallDomain(), self.call)
            self._balls[bits] = {n: _shaped(self.call, n, t) for n, t in found.items()}
        return self._balls[bits]
