"""Laws of the backward pass that need no exact gradient: pairing with the JVP, and what is conserved."""

from __future__ import annotations

import numpy as np

from attnspec.certify.claims import Capabilities, requires
from attnspec.certify.trials.expectations import Total
from attnspec.certify.trials.property import MODIFIERS, Trials, claim
from attnspec.certify.trials.run import expected_tensors
from attnspec.certify.trials.trial import Trial
from attnspec.pyspec import AttentionCall, evaluate_jvp
from attnspec.pyspec.calls.formats import round_to
from attnspec.pyspec.oracle.bound import BoundDomain
from attnspec.pyspec.oracle.ledger import NUMPY_FLOAT64
from attnspec.strategies.derived import call_rng, whole_bias, with_least_mask


@claim(
    "jvp-backward-pairing",
    "The gradients pair with any tangent as the derivative of the output pairs with the output gradient.",
    theorem="jvp_backward_pairing",
    also=(
        "jvp_backward_pairing_without_bias",
        "jvp_linear",
        "backward_helper_symmetric",
        "grouped_jvp_backward_pairing",
    ),
    keep=MODIFIERS,
    needs=requires("gradients"),
    resembles=("flash-attention PR#2544", "apex#816"),
)
def jvp_backward_pairing(call: AttentionCall, claims: Capabilities) -> Trials:
    if call.grad_output is None:
        return "the call has no output gradient"
    rng = call_rng(call, "tangent")
    names = ["query", "key", "value"] + (["bias"] if "grad_bias" in expected_tensors(call, claims) else [])
    tangent = {n: round_to("float32", rng.standard_normal(getattr(call, n).shape)) for n in names}
    moved = evaluate_jvp(BoundDomain(NUMPY_FLOAT64), call, tangent)
    with np.errstate(all="ignore"):
        left = np.array(float((moved.value * call.grad_output).sum()))
        slack = float((moved.bound * np.abs(call.grad_output)).sum())
        # This sum is taken in float64 here.
        count = sum(tangent[n].size for n in names) + moved.value.size
        slack += 2.0**-53 * count * float(np.abs(moved.value * call.grad_output).sum())
    terms = tuple((f"grad_{n}", tangent[n]) for n in names)
    total = Total("⟨tangent, gradient⟩", terms, None, left, np.array(slack), count)
    yield Trial(call, tensors=(), expect=(total,))


@claim(
    "score-gradient-row-sum",
    "The gradient of a row's scores sums to zero.",
    theorem="score_gradient_row_sum_zero",
    prepare=whole_bias,
    needs=requires("bias_gradient"),
)
def score_gradient_row_sum(call: AttentionCall) -> Trials:
    if call.grad_output is None or call.bias is None or call.bias.shape != call.score_shape:
        return "no gradient of a full bias to sum"
    zero = np.zeros(call.score_shape[:3])
    total = Total("Σ grad_bias", (("grad_bias", None),), 3, zero, zero, call.axes.keys)
    yield Trial(call, tensors=(), expect=(total,))


@claim(
    "shared-bias-gradient",
    "The gradient of a bias stored once along an axis is the sum of the score gradients along that axis.",
    theorem="bias_gradient_is_score_gradient",
    needs=requires("bias_gradient"),
    keep=MODIFIERS,
    small=True,
)
def shared_bias_gradient(call: AttentionCall) -> Trials:
    """A bias stored with length 1 along each axis in turn, with nothing hidden: a mask passed beside it would make it
    whole. And along some of the axes, beside the call's own mask.
    """
    longer = [axis for axis, length in enumerate(call.score_shape) if length > 1]
    if call.grad_output is None or not longer or 0 in call.score_shape:
        return "no output gradient, or no axis to share a bias along"
    rng = call_rng(call, "shared axes")
    bare = with_least_mask(call, np.ones((1, 1, 1, 1), dtype=bool))
    some = [int(axis) for axis in rng.permutation(longer)[: int(rng.integers(2, 5))]]
    for one, shared in (*((bare, [axis]) for axis in longer), (call, some)):
        shape = tuple(1 if axis in shared else n for axis, n in enumerate(call.score_shape))
        biased = one.but(bias=rng.integers(-2, 3, shape).astype(np.float64), encoding="additive")
        yield Trial(biased, tensors=("grad_bias",))


@claim(
    "value-gradient-conserved",
    "The value gradients sum to the output gradients of the rows that see a key.",
    theorem="value_gradient_conserved",
    needs=requires("gradients"),
    resembles=("flash-attention#2421",),
)
def value_gradient_conserved(call: AttentionCall) -> Trials:
    if call.grad_output is None or call.dropout is not None:
        return "no output gradient, or dropout changes the mass"
    mass = call.visible.any(axis=-1, keepdims=True)
    per_key_head = np.zeros((call.axes.batch, call.axes.key_heads, call.axes.value_width))
    sizes = np.zeros_like(per_key_head)
    with np.errstate(all="ignore"):
        incoming = (call.grad_output * mass).sum(axis=2)
        for head, target in enumerate(call.head_map):
            per_key_head[:, target] += incoming[:, head]
            sizes[:, target] += np.abs(call.grad_output[:, head]).sum(axis=1)
    count = call.axes.queries * call.axes.query_heads + call.axes.keys
    error = 2.0**-53 * count * sizes
    yield Trial(
        call, tensors=(), expect=(Total("Σ grad_value", (("grad_value", None),), 2, per_key_head, error, count),)
    )
