"""Softcap and attention sink: scores capped before bias and mask, and a logit that takes mass and has no value."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from attnspec.certify.claims import requires
from attnspec.certify.properties.agreement import SHARE
from attnspec.certify.properties.modifier_models import named_mistakes
from attnspec.certify.trials.diagnosis import Tensors, dot_scores, fitting
from attnspec.certify.trials.expectations import Values, zeros
from attnspec.certify.trials.property import Trials, claim
from attnspec.certify.trials.trial import Trial
from attnspec.pyspec import AttentionCall
from attnspec.pyspec.calls.formats import round_to
from attnspec.strategies.derived import call_rng, garbage, keys_hidden_from_all, with_mask
from attnspec.strategies.modifiers import SOFTCAPS

# c² outgrows s² by more than any format's precision where scores stay below the second number.
NO_CAP, SMALL_SCORES = 2.0**40, 2.0**13


def named(call: AttentionCall, observed: Tensors, allowed: Tensors) -> Iterable[str]:
    """The mistakes with a softcap or a sink that fit."""
    return fitting(named_mistakes(call), observed, allowed)


def _any_cap(call: AttentionCall) -> AttentionCall:
    """Any cap, and scores of its size: far below it nothing is capped, far above everything alike."""
    rng = call_rng(call, "softcap")
    cap = float(rng.choice(SOFTCAPS))
    call = call.but(softcap=cap)
    with np.errstate(all="ignore"):
        top = float(np.abs(call.scale_value * dot_scores(call)).max(initial=0.0))
    if 0.0 < top < np.inf and rng.random() < 0.5:
        wanted = cap * float(rng.choice([0.5, 1.0, 3.0]))
        with np.errstate(all="ignore"):
            scaled = round_to(call.dtype, call.query * (wanted / top))
        if np.isfinite(scaled).all():
            call = call.but(query=scaled)
    return call


@claim(
    "softcap-agreement",
    "Scores are capped to c tanh(s / c) after the scale and before the bias; gradients take its slope.",
    theorem="softcap_forward_over_duals",
    also=("softcap_backward_is_transpose", "softcap_jvp_backward_pairing"),
    keep=("softcap", "sink"),
    prepare=_any_cap,
    needs=requires("softcap"),
    diagnose=named,
    share=SHARE,
    resembles=("flash-attention#2544",),
)
def softcap_agreement(call: AttentionCall) -> Trials:
    yield Trial(call)


def _capped_beside_hidden(call: AttentionCall) -> AttentionCall | None:
    """Some keys hidden from every row, and scores so negative that a hidden score of -c would rank high."""
    a = call.axes
    if a.keys < 2 or a.queries == 0:
        return None
    rng = call_rng(call, "softcap beside hidden keys")
    hidden = rng.random(a.keys) < 0.4
    hidden[int(rng.integers(a.keys))] = True
    return with_mask(call, call.visible & ~hidden).but(softcap=float(rng.choice(SOFTCAPS[:2])))


@claim(
    "softcap-before-mask",
    "Hidden keys stay hidden under a softcap: capping after the mask would lift their scores to -c.",
    theorem="softcap_masked_weight_zero",
    also=("softcap_empty_row_output_zero", "masked_keys_inert"),
    keep=("softcap", "sink"),
    prepare=_capped_beside_hidden,
    needs=requires("softcap", "masks"),
    diagnose=named,
)
def softcap_before_mask(call: AttentionCall) -> Trials:
    hidden = keys_hidden_from_all(call)[..., None]
    if not hidden.any():
        return "no key is hidden from every row"
    rng = call_rng(call, "garbage beside a softcap")
    yield Trial(call)
    other = call.but(value=np.where(hidden, garbage(rng, call.value.shape, call.dtype), call.value))
    yield Trial(other, against=call)


@claim(
    "softcap-off-is-identity-limit",
    "A softcap far above every score changes nothing that a rounding would not.",
    basis="|c tanh(s/c) - s| ≤ |s|³/3c², and 1 - tanh²(s/c) ≥ 1 - s²/c²",
    keep=("softcap", "sink"),
    prepare=lambda call: call.but(softcap=NO_CAP),
    needs=requires("softcap"),
)
def softcap_off_is_identity_limit(call: AttentionCall) -> Trials:
    if call.softcap != NO_CAP:
        return "the softcap is not a very large one"
    with np.errstate(all="ignore"):
        key = np.abs(call.key[:, list(call.head_map)])
        most = abs(call.scale_value) * (np.abs(call.query) @ np.swapaxes(key, -1, -2)).max(initial=0.0)
    if not most < SMALL_SCORES:
        return "scores too large to be far below any cap"
    # |c tanh(s/c) - s| ≤ |s|³/3c² and 1 - slope ≤ s²/c² are less than one more rounding of the tanh.
    yield Trial(call, against=call.but(softcap=None), tanh_error=1.0)


def _with_sink(call: AttentionCall, most: float = 4.0) -> AttentionCall:
    rng = call_rng(call, "sink")
    logits = rng.choice([0.0, 1.0, -2.0, most], size=call.axes.query_heads)
    return call.but(sink=round_to(call.dtype, logits + 0.25 * rng.integers(-4, 5, logits.shape)))


def _any_sink(call: AttentionCall) -> AttentionCall:
    return _with_sink(call, float(call_rng(call, "size of sink").choice([4.0, 30.0, -30.0])))


@claim(
    "sink-agreement",
    "A sink takes its share of every row's mass and carries no value, forward, backward and in its gradient.",
    theorem="sink_output_over_real_keys",
    also=("sink_joins_denominator", "sink_gradient_is_minus_mass_times_delta"),
    keep=("softcap", "sink"),
    prepare=_any_sink,
    needs=requires("sink"),
    diagnose=named,
    share=SHARE,
)
def sink_agreement(call: AttentionCall) -> Trials:
    yield Trial(call)


def _values_one(call: AttentionCall) -> AttentionCall:
    return _with_sink(call.but(value=np.ones_like(call.value), dropout=None))


@claim(
    "sink-takes-mass",
    "With a sink the weights of a row sum to less than one: values of one give 1 - p_sink.",
    theorem="sink_takes_mass",
    also=("sink_joins_denominator",),
    keep=("softcap", "sink"),
    prepare=_values_one,
    needs=requires("sink"),
    diagnose=named,
)
def sink_takes_mass(call: AttentionCall) -> Trials:
    if call.sink is None or call.dropout is not None or not (call.value == 1.0).all():
        return "no sink, or values other than one"
    yield Trial(call.but(grad_output=None), tensors=("output",))


def _empty_beside_sink(call: AttentionCall) -> AttentionCall | None:
    a = call.axes
    if a.queries < 2:
        return None
    rng = call_rng(call, "empty rows beside a sink")
    hide = rng.random((1, 1, a.queries, 1)) < 0.4
    hide[:, :, int(rng.integers(a.queries))] = True
    return _any_sink(with_mask(call, call.visible & ~hide))


@claim(
    "sink-empty-row",
    "With a sink a row without a visible key is defined: output and gradients zero, LSE the sink's logit.",
    theorem="sink_empty_row_output_zero",
    keep=("softcap", "sink"),
    prepare=_empty_beside_sink,
    needs=requires("sink", "empty_rows"),
)
def sink_empty_row(call: AttentionCall) -> Trials:
    empty = np.asarray(~call.visible.any(axis=-1))
    if call.sink is None or not empty.any():
        return "no sink, or no empty row"
    lse = Values("lse", call.sink[None, :, None], empty)
    yield Trial(call, expect=(zeros("output", empty[..., None]), zeros("grad_query", empty[..., None]), lse))
