"""What it means to be hidden: no polarity but one, no bias that revives, no score so low that hidden keys matter."""

from __future__ import annotations

import numpy as np

from attnspec.certify.properties.requires import requires
from attnspec.certify.properties.surgery import with_mask
from attnspec.certify.properties.visibility import FORWARD, half_counting, no_scores
from attnspec.certify.trials.claim import Trials, call_rng, claim
from attnspec.certify.trials.trial import Trial
from attnspec.pyspec import AttentionCall


def _sparse(call: AttentionCall) -> AttentionCall | None:
    """Every row sees one key at least and misses one at least."""
    a = call.axes
    if no_scores(call) or a.keys < 2:
        return None
    rng = call_rng(call, "sparse")
    mask = rng.random(call.score_shape) < rng.choice([0.2, 0.5, 0.8])
    one, other = (
        rng.integers(a.keys, size=(*call.score_shape[:3], 1)),
        rng.integers(1, a.keys, (*call.score_shape[:3], 1)),
    )
    np.put_along_axis(mask, one, True, axis=-1)
    np.put_along_axis(mask, (one + other) % a.keys, False, axis=-1)
    return with_mask(call, mask)


def _told_either_way(call: AttentionCall) -> AttentionCall | None:
    """As a boolean mask or as zeros and -inf."""
    found = _sparse(call)
    if found is None:
        return None
    kind = str(call_rng(call, "told").choice(["bool", "additive"]))
    return half_counting(found.but(bias=None, encoding=kind))


@claim(
    "mask-polarity",
    "True in a boolean mask and zero in an additive one mean that the key is visible.",
    theorem="visibility_composition",
    also=("blocked_masks_compose_by_or", "additive_masks_compose"),
    prepare=_told_either_way,
    needs=requires("masks"),
    small=True,
    resembles=("LLMs-from-scratch#1061",),
)
def mask_polarity(call: AttentionCall) -> Trials:
    yield Trial(call)


def _rewarded(call: AttentionCall) -> AttentionCall | None:
    """A bias that prefers exactly the hidden keys."""
    found = _sparse(call)
    if found is None:
        return None
    rng = call_rng(call, "reward")
    bias = np.where(found.visible, rng.integers(-2, 3, call.score_shape), rng.choice([7.0, 64.0, 1024.0]))
    return found.but(bias=bias.astype(np.float64), encoding="additive")


@claim(
    "bias-never-revives",
    "A finite bias on a hidden key, however large, gives it no weight and gets no gradient.",
    theorem="masked_keys_inert",
    also=("masked_weight_zero", "masked_score_gradient_zero"),
    prepare=_rewarded,
    needs=requires("bias"),
    small=True,
)
def bias_never_revives(call: AttentionCall) -> Trials:
    yield Trial(call)
    if call.bias is None or call.visible.all():
        return
    whole = np.broadcast_to(call.bias, call.score_shape)
    other = call.but(bias=np.where(call.visible, whole, call_rng(call, "other reward").choice([-7.0, 0.0, 7.0])))
    yield Trial(other, tensors=(*FORWARD, "grad_key", "grad_value"), against=call)


def _far_below(call: AttentionCall) -> AttentionCall | None:
    """The visible scores of every row lie near -2^15, the hidden ones near 0: every format holds both."""
    found = _sparse(call)
    if found is None:
        return None
    size = call_rng(call, "depth").choice([2.0**14, 2.0**15])
    # In a counting probe the bias stays: the query is zero, so the scores are the bias and the softmax is exact.
    return half_counting(found.but(bias=np.where(found.visible, -size, 0.0), encoding="additive"), keep_bias=True)


@claim(
    "hidden-is-absent",
    "However far below the hidden scores the visible ones lie, hidden keys take no weight.",
    theorem="masked_weight_zero",
    also=("shift_invariance",),
    prepare=_far_below,
    needs=requires("bias"),
    small=True,
)
def hidden_is_absent(call: AttentionCall) -> Trials:
    yield Trial(call)
