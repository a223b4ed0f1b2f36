"""Agreement with the spec: forward, LSE, and every gradient."""

from __future__ import annotations

from attnspec.certify.claims import requires
from attnspec.certify.trials.property import MODIFIERS, Trials, claim
from attnspec.certify.trials.run import GRADIENTS
from attnspec.certify.trials.trial import Trial
from attnspec.pyspec import AttentionCall
from attnspec.strategies.derived import call_rng

# The claims that compare every output with its exact value catch the most: they get this many times the cases.
SHARE = 3.0


@claim(
    "forward-agreement",
    "The output is the specified attention, each entry within the error that the ledger allows.",
    theorem="forward_over_duals",
    also=("forward_over_nested_duals", "masked_weight_zero"),
    keep=MODIFIERS,
    share=SHARE,
    resembles=("pytorch#188322", "transformers#48748", "flash-attention#402"),
)
def forward_agreement(call: AttentionCall) -> Trials:
    # Without gradients a subject may take an inference path of its own: both are drawn.
    if call_rng(call, "inference").random() < 0.5:
        call = call.but(grad_output=None)
    yield Trial(call, tensors=("output",))


@claim(
    "lse-agreement",
    "The returned log-sum-exp is that of the visible scores, and -inf on an empty row.",
    theorem="weights_from_log_sum_exp",
    keep=MODIFIERS,
    needs=requires("lse"),
    share=SHARE,
    resembles=("flashinfer#2113", "attention-gym#37", "pytorch PR#134650"),
)
def lse_agreement(call: AttentionCall) -> Trials:
    yield Trial(call, tensors=("lse",))


@claim(
    "gradient-agreement",
    "The gradients of query, key, value and bias are the transpose of the derivative, within the ledger.",
    theorem="backward_is_transpose",
    also=(
        "backward_linear",
        "delta_contraction",
        "score_gradient_from_output",
        "bias_gradient_is_score_gradient",
    ),
    keep=MODIFIERS,
    needs=requires("gradients"),
    share=SHARE,
    resembles=("pytorch#158212", "jax#27184", "nki-samples PR#81"),
)
def gradient_agreement(call: AttentionCall) -> Trials:
    if call.grad_output is None:
        return "the call has no output gradient"
    yield Trial(call, tensors=GRADIENTS)
