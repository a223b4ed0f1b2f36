"""What it means to be hidden: no polarity but one, no bias that revives, no score so low that hidden keys matter."""

from __future__ import annotations

import numpy as np

from attnspec.certify.claims import requires
from attnspec.certify.trials.property import Trials, claim
from attnspec.certify.trials.run import ROWWISE
from attnspec.certify.trials.trial import Trial
from attnspec.pyspec import AttentionCall
from attnspec.strategies.derived import call_rng
from attnspec.strategies.relations import bool_or_additive, far_below, hidden_rewarded


@claim(
    "mask-polarity",
    "True in a boolean mask and zero in an additive one mean that the key is visible.",
    theorem="visibility_composition",
    also=("blocked_masks_compose_by_or", "additive_masks_compose"),
    prepare=bool_or_additive,
    needs=requires("masks"),
    small=True,
    resembles=("LLMs-from-scratch#1061",),
)
def mask_polarity(call: AttentionCall) -> Trials:
    yield Trial(call)


@claim(
    "bias-never-revives",
    "A finite bias on a hidden key, however large, gives it no weight and gets no gradient.",
    theorem="masked_keys_inert",
    also=("masked_weight_zero", "masked_score_gradient_zero"),
    prepare=hidden_rewarded,
    needs=requires("bias"),
    small=True,
)
def bias_never_revives(call: AttentionCall) -> Trials:
    yield Trial(call)
    if call.bias is None or call.visible.all():
        return
    whole = np.broadcast_to(call.bias, call.score_shape)
    other = call.but(bias=np.where(call.visible, whole, call_rng(call, "other reward").choice([-7.0, 0.0, 7.0])))
    yield Trial(other, tensors=(*ROWWISE, "grad_key", "grad_value"), against=call)


@claim(
    "hidden-is-absent",
    "However far below the hidden scores the visible ones lie, hidden keys take no weight.",
    theorem="masked_weight_zero",
    also=("shift_invariance",),
    prepare=far_below,
    needs=requires("bias"),
    small=True,
)
def hidden_is_absent(call: AttentionCall) -> Trials:
    yield Trial(call)
