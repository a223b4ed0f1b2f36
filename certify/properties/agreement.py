"""Agreement with the spec: forward, LSE, and every gradient."""

from __future__ import annotations

from attnspec.certify.properties import needs
from attnspec.certify.properties.agree import GRADIENTS, agree
from attnspec.certify.properties.model import Bench, Outcome, Property, call_rng, register
from attnspec.pyspec import AttentionCall


def _forward(call: AttentionCall, bench: Bench) -> Outcome:
    # Without gradients a subject may take an inference path of its own: both are drawn.
    if call_rng(call, "inference").random() < 0.5:
        call = call.but(grad_output=None)
    return agree(call, bench, tensors=("output",))


def _lse(call: AttentionCall, bench: Bench) -> Outcome:
    return agree(call, bench, tensors=("lse",))


def _gradients(call: AttentionCall, bench: Bench) -> Outcome:
    if call.grad_output is None:
        return Outcome(skipped="the call has no output gradient")
    return agree(call, bench, tensors=GRADIENTS)


register(
    Property(
        id="forward-agreement",
        claim="The output is the specified attention, each entry within the error that the ledger allows.",
        theorem="forward_over_duals",
        check=_forward,
        modifiers=True,
        catches=("pytorch#188322", "transformers#48748", "flash-attention#402"),
        also=(
            "forward_over_nested_duals",
            "masked_weight_zero",
        ),
    )
)
register(
    Property(
        id="lse-agreement",
        claim="The returned log-sum-exp is that of the visible scores, and -inf on an empty row.",
        theorem="weights_from_log_sum_exp",
        check=_lse,
        modifiers=True,
        needs=needs.lse,
        catches=("flashinfer#2113", "attention-gym#37", "pytorch PR#134650"),
    )
)
register(
    Property(
        id="gradient-agreement",
        claim="The gradients of query, key, value and bias are the transpose of the derivative, within the ledger.",
        theorem="backward_is_transpose",
        check=_gradients,
        modifiers=True,
        needs=needs.gradients,
        catches=("pytorch#158212", "jax#27184", "nki-samples PR#81"),
        also=(
            "backward_linear",
            "delta_contraction",
            "score_gradient_from_output",
            "bias_gradient_is_score_gradient",
        ),
    )
)
