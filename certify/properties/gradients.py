"""Laws of the backward pass that need no exact gradient: pairing with the JVP, and what is conserved."""

from __future__ import annotations

import numpy as np

from attnspec.certify.properties import needs
from attnspec.certify.properties.agree import agree, compare, joined, observed
from attnspec.certify.properties.model import Bench, Outcome, Property, call_rng, register
from attnspec.certify.properties.surgery import whole_bias, with_least_mask
from attnspec.pyspec import AttentionCall, evaluate_jvp
from attnspec.pyspec.calls.formats import round_to
from attnspec.pyspec.oracle.bound import BoundDomain
from attnspec.pyspec.oracle.ledger import NUMPY_FLOAT64


def _paired(call: AttentionCall, bench: Bench) -> Outcome:
    if call.grad_output is None:
        return Outcome(skipped="the call has no output gradient")
    seen = observed(call, bench)
    rng = call_rng(call, "tangent")
    names = ["query", "key", "value"] + (["bias"] if "grad_bias" in seen.tensors else [])
    tangent = {n: round_to("float32", rng.standard_normal(getattr(call, n).shape)) for n in names}
    moved = evaluate_jvp(BoundDomain(NUMPY_FLOAT64), call, tangent)
    bounds = bench.bounds(call)
    with np.errstate(all="ignore"):
        left = np.array(float((moved.value * call.grad_output).sum()))
        slack = float((moved.bound * np.abs(call.grad_output)).sum())
        right = sum(float((tangent[n] * seen.tensors[f"grad_{n}"]).sum()) for n in names)
        slack += sum(float((np.abs(tangent[n]) * bounds[f"grad_{n}"]).sum()) for n in names)
        # The sums themselves are taken in float64 here.
        sizes = sum(float(np.abs(tangent[n] * seen.tensors[f"grad_{n}"]).sum()) for n in names)
        terms = sum(tangent[n].size for n in names) + moved.value.size
        slack += 2.0**-53 * terms * (sizes + float(np.abs(moved.value * call.grad_output).sum()))
    allowed = np.array(np.inf if np.isnan(slack) else slack)
    judged = compare("⟨tangent, gradient⟩", np.array(right), left, allowed)
    return Outcome(judgements=(judged,), kernel=seen.kernel)


def _row_sum(call: AttentionCall, bench: Bench) -> Outcome:
    if call.grad_output is None or call.bias is None or call.bias.shape != call.score_shape:
        return Outcome(skipped="no gradient of a full bias to sum")
    seen = observed(call, bench)
    found = seen.tensors["grad_bias"]
    allowed = bench.bounds(call)["grad_bias"].sum(axis=-1)
    with np.errstate(all="ignore"):
        total = found.sum(axis=-1)
        allowed = allowed + 2.0**-53 * found.shape[-1] * np.abs(found).sum(axis=-1)
    allowed = np.where(np.isnan(allowed), np.inf, allowed)
    return Outcome(judgements=(compare("Σ grad_bias", total, np.zeros_like(total), allowed),), kernel=seen.kernel)


def _shared_bias(call: AttentionCall, bench: Bench) -> Outcome:
    """A bias stored with length 1 along each axis in turn, with nothing hidden: a mask told beside it would make it
    whole. And along some of the axes, beside the call's own mask.
    """
    longer = [axis for axis, length in enumerate(call.score_shape) if length > 1]
    if call.grad_output is None or not longer or 0 in call.score_shape:
        return Outcome(skipped="no output gradient, or no axis to share a bias along")
    rng = call_rng(call, "shared axes")
    bare = with_least_mask(call, np.ones((1, 1, 1, 1), dtype=bool))
    some = [int(axis) for axis in rng.permutation(longer)[: int(rng.integers(2, 5))]]
    outcomes = []
    for one, shared in (*((bare, [axis]) for axis in longer), (call, some)):
        shape = tuple(1 if axis in shared else n for axis, n in enumerate(call.score_shape))
        biased = one.but(bias=rng.integers(-2, 3, shape).astype(np.float64), encoding="additive")
        outcomes.append(agree(biased, bench, tensors=("grad_bias",)))
    return joined(*outcomes)


def _conserved(call: AttentionCall, bench: Bench) -> Outcome:
    if call.grad_output is None or call.dropout is not None:
        return Outcome(skipped="no output gradient, or dropout changes the mass")
    seen = observed(call, bench)
    mass = call.visible.any(axis=-1, keepdims=True)
    per_key_head = np.zeros((call.axes.batch, call.axes.key_heads, call.axes.value_width))
    sizes = np.zeros_like(per_key_head)
    found = seen.tensors["grad_value"]
    with np.errstate(all="ignore"):
        incoming = (call.grad_output * mass).sum(axis=2)
        for head, target in enumerate(call.head_map):
            per_key_head[:, target] += incoming[:, head]
            sizes[:, target] += np.abs(call.grad_output[:, head]).sum(axis=1)
        total = found.sum(axis=2)
        allowed = bench.bounds(call)["grad_value"].sum(axis=2)
        terms = call.axes.queries * call.axes.query_heads + call.axes.keys
        allowed = allowed + 2.0**-53 * terms * (np.abs(found).sum(axis=2) + sizes)
    allowed = np.where(np.isnan(allowed), np.inf, allowed)
    return Outcome(judgements=(compare("Σ grad_value", total, per_key_head, allowed),), kernel=seen.kernel)


register(
    Property(
        id="jvp-backward-pairing",
        claim="The gradients pair with any tangent as the derivative of the output pairs with the output gradient.",
        theorem="jvp_backward_pairing",
        check=_paired,
        modifiers=True,
        needs=needs.gradients,
        catches=("flash-attention PR#2544", "apex#816"),
        also=(
            "jvp_backward_pairing_without_bias",
            "jvp_linear",
            "backward_helper_symmetric",
            "grouped_jvp_backward_pairing",
        ),
    )
)
register(
    Property(
        id="score-gradient-row-sum",
        claim="The gradient of a row's scores sums to zero.",
        theorem="score_gradient_row_sum_zero",
        check=_row_sum,
        prepare=whole_bias,
        needs=needs.bias_gradient,
    )
)
register(
    Property(
        id="shared-bias-gradient",
        claim="The gradient of a bias stored once along an axis is the sum of the score gradients along that axis.",
        theorem="bias_gradient_is_score_gradient",
        check=_shared_bias,
        needs=needs.bias_gradient,
        modifiers=True,
        small=True,
    )
)
register(
    Property(
        id="value-gradient-conserved",
        claim="The value gradients sum to the output gradients of the rows that see a key.",
        theorem="value_gradient_conserved",
        check=_conserved,
        needs=needs.gradients,
        catches=("flash-attention#2421",),
    )
)
