"""Softcap and attention sink: scores capped before bias and mask, and a logit that takes mass and has no value."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attnspec.certify.properties import needs
from attnspec.certify.properties.agree import agree, compare, joined, observed, zero
from attnspec.certify.properties.explain import dot_scores, explained
from attnspec.certify.properties.model import Bench, Outcome, Property, call_rng, register, to_its_end
from attnspec.certify.properties.modifier_models import Way, modelled, named_mistakes
from attnspec.certify.properties.surgery import garbage, keys_hidden_from_all, with_mask
from attnspec.pyspec import AttentionCall, bounds
from attnspec.pyspec.calls.formats import get_format, round_to
from attnspec.strategies.modifiers import SOFTCAPS

# c² outgrows s² by more than any format's precision where scores stay below the second number.
NO_CAP, SMALL_SCORES = 2.0**40, 2.0**13


@to_its_end
def _named(call: AttentionCall, bench: Bench, against: AttentionCall | None = None) -> Outcome:
    """Agreement in every tensor; a refutation is led by the mistake that fits."""
    seen, allowed = observed(call, bench), bench.bounds(call)
    outcome = agree(call, bench, seen=seen, bounds=allowed, against=against)
    if not outcome.refuted:
        return outcome
    # The bounds speak of the right tensor; a wrong one, perhaps much larger, rounds by its own size.
    unit = (call.axes.keys + 8) * get_format(call.dtype).unit_roundoff
    with np.errstate(all="ignore"):
        around = {n: b + unit * np.abs(seen.tensors[n]) for n, b in allowed.items() if n in seen.tensors}
    return explained(outcome, seen.tensors, around, named_mistakes(call))


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


def _capped_beside_hidden(call: AttentionCall) -> AttentionCall | None:
    """Some keys hidden from every row, and scores so negative that a hidden score of -c would rank high."""
    a = call.axes
    if a.keys < 2 or a.queries == 0:
        return None
    rng = call_rng(call, "softcap beside hidden keys")
    hidden = rng.random(a.keys) < 0.4
    hidden[int(rng.integers(a.keys))] = True
    return with_mask(call, call.visible & ~hidden).but(softcap=float(rng.choice(SOFTCAPS[:2])))


def _hidden_stay_hidden(call: AttentionCall, bench: Bench) -> Outcome:
    hidden = keys_hidden_from_all(call)[..., None]
    if not hidden.any():
        return Outcome(skipped="no key is hidden from every row")
    rng = call_rng(call, "garbage beside a softcap")
    loud = call.but(value=np.where(hidden, garbage(rng, call.value.shape, call.dtype), call.value))
    return joined(_named(call, bench), _named(loud, bench, against=call))


def _no_limit(call: AttentionCall) -> AttentionCall:
    return call.but(softcap=NO_CAP)


def _identity_limit(call: AttentionCall, bench: Bench) -> Outcome:
    if call.softcap != NO_CAP:
        return Outcome(skipped="the softcap is not a very large one")
    with np.errstate(all="ignore"):
        key = np.abs(call.key[:, list(call.head_map)])
        most = abs(call.scale_value) * (np.abs(call.query) @ np.swapaxes(key, -1, -2)).max(initial=0.0)
    if not most < SMALL_SCORES:
        return Outcome(skipped="scores too large to be far below any cap")
    ledger = bench.ledger_for(call.dtype)
    # |c tanh(s/c) - s| ≤ |s|³/3c² and 1 - slope ≤ s²/c² are less than one more rounding of the tanh.
    allowed = bounds(call, replace(ledger, tanh_error=ledger.tanh_error + 1.0))
    return agree(call, bench, against=call.but(softcap=None), bounds=allowed)


def _with_sink(call: AttentionCall, most: float = 4.0) -> AttentionCall:
    rng = call_rng(call, "sink")
    logits = rng.choice([0.0, 1.0, -2.0, most], size=call.axes.query_heads)
    return call.but(sink=round_to(call.dtype, logits + 0.25 * rng.integers(-4, 5, logits.shape)))


def _any_sink(call: AttentionCall) -> AttentionCall:
    return _with_sink(call, float(call_rng(call, "size of sink").choice([4.0, 30.0, -30.0])))


def _values_one(call: AttentionCall) -> AttentionCall:
    return _with_sink(call.but(value=np.ones_like(call.value), dropout=None))


def _takes_mass(call: AttentionCall, bench: Bench) -> Outcome:
    if call.sink is None or call.dropout is not None or not (call.value == 1.0).all():
        return Outcome(skipped="no sink, or values other than one")
    call = call.but(grad_output=None)
    seen = observed(call, bench)
    # With values of one the output is the mass that is left to the keys: 1 - p_sink.
    left, allowed = modelled(call, Way())["output"], bench.bounds(call)["output"]
    found = seen.tensors["output"]
    whole = (found >= 1.0) & (left + 2 * allowed < 1.0) & np.isfinite(left)
    outcome = agree(call, bench, seen=seen, tensors=("output",))
    if outcome.refuted and whole.any():
        at = tuple(int(n) for n in np.argwhere(whole)[0])
        said = f"the sink takes no mass: output{list(at)} = {float(found[at])!r} where {float(left[at])!r} is left"
        return Outcome(judgements=outcome.judgements, broken=said, kernel=seen.kernel)
    return outcome


def _empty_beside_sink(call: AttentionCall) -> AttentionCall | None:
    a = call.axes
    if a.queries < 2:
        return None
    rng = call_rng(call, "empty rows beside a sink")
    hide = rng.random((1, 1, a.queries, 1)) < 0.4
    hide[:, :, int(rng.integers(a.queries))] = True
    return _any_sink(with_mask(call, call.visible & ~hide))


def _empty_rows(call: AttentionCall, bench: Bench) -> Outcome:
    empty = ~call.visible.any(axis=-1)
    if call.sink is None or not empty.any():
        return Outcome(skipped="no sink, or no empty row")
    seen, allowed = observed(call, bench), bench.bounds(call)
    judged = []
    for name in ("output", "grad_query"):
        if name in seen.tensors:
            judged.append(zero(f"{name} of empty rows", seen.tensors[name][empty], allowed[name][empty]))
    if "lse" in seen.tensors:
        logit = np.broadcast_to(call.sink[None, :, None], empty.shape)[empty]
        judged.append(compare("lse of empty rows", seen.tensors["lse"][empty], logit, allowed["lse"][empty]))
    return joined(Outcome(judgements=tuple(judged), kernel=seen.kernel), agree(call, bench, seen=seen, bounds=allowed))


register(
    Property(
        id="softcap-agreement",
        claim="Scores are capped to c tanh(s / c) after the scale and before the bias; gradients take its slope.",
        theorem="softcap_forward_over_duals",
        check=_named,
        prepare=_any_cap,
        needs=needs.softcap,
        catches=("flash-attention#2544",),
        also=("softcap_backward_is_transpose", "softcap_jvp_backward_pairing"),
        modifiers=True,
    )
)
register(
    Property(
        id="softcap-before-mask",
        claim="Hidden keys stay hidden under a softcap: capping after the mask would lift their scores to -c.",
        theorem="softcap_masked_weight_zero",
        check=_hidden_stay_hidden,
        prepare=_capped_beside_hidden,
        needs=lambda c: needs.softcap(c) or needs.masks(c),
        also=("softcap_empty_row_output_zero", "masked_keys_inert"),
        modifiers=True,
    )
)
register(
    Property(
        id="softcap-off-is-identity-limit",
        claim="A softcap far above every score changes nothing that a rounding would not.",
        theorem=None,
        basis="|c tanh(s/c) - s| ≤ |s|³/3c², and 1 - tanh²(s/c) ≥ 1 - s²/c²",
        check=_identity_limit,
        prepare=_no_limit,
        needs=needs.softcap,
        modifiers=True,
    )
)
register(
    Property(
        id="sink-agreement",
        claim="A sink takes its share of every row's mass and carries no value, forward, backward and in its gradient.",
        theorem="sink_output_over_real_keys",
        check=_named,
        prepare=_any_sink,
        needs=needs.sink,
        also=("sink_joins_denominator", "sink_gradient_is_minus_mass_times_delta"),
        modifiers=True,
    )
)
register(
    Property(
        id="sink-takes-mass",
        claim="With a sink the weights of a row sum to less than one: values of one give 1 - p_sink.",
        theorem="sink_takes_mass",
        check=_takes_mass,
        prepare=_values_one,
        needs=needs.sink,
        also=("sink_joins_denominator",),
        modifiers=True,
    )
)
register(
    Property(
        id="sink-empty-row",
        claim="With a sink a row without a visible key is defined: output and gradients zero, LSE the sink's logit.",
        theorem="sink_empty_row_output_zero",
        check=_empty_rows,
        prepare=_empty_beside_sink,
        needs=lambda c: needs.sink(c) or needs.empty_rows(c),
        modifiers=True,
    )
)
