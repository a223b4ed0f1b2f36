"""One mask in both passes: the one that is given, or the one that the subject draws.

Equal scores and unit values make a mask visible: with P = 1/n and V = 1 the output is P ⊙ Z itself, and with G = 1 so
is the value gradient. What is then claimed of chance is claimed with the probability of a false alarm stated here,
from exact binomial tails: a right subject is refuted at most so often.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from attnspec.certify.properties import needs
from attnspec.certify.properties.agree import GRADIENTS, agree, compare, failure, joined, observed
from attnspec.certify.properties.dropout import dropped
from attnspec.certify.properties.model import Bench, Outcome, Property, call_rng, register
from attnspec.certify.subjects.claims import requires
from attnspec.certify.subjects.families import sampled_call
from attnspec.pyspec import AttentionCall, Dropout, Layout, Visibility
from attnspec.pyspec.dropout import count_interval, multiplier

# A right subject fails one check of chance at most this often.
FALSE_ALARM = Fraction(1, 10**9)
_SEEDS = 16


_needs_sampling = requires("own_dropout")


def _visible_mask(call: AttentionCall) -> AttentionCall | None:
    """Equal scores, unit values and unit output gradients: output and value gradient show the consumed weights."""
    a = call.axes
    if 0 in call.score_shape:
        return None
    width = max(a.queries, a.keys)
    lead = (a.batch, a.query_heads)
    return AttentionCall(
        query=np.zeros((*lead, a.queries, width)),
        key=np.zeros((*lead, a.keys, width)),
        value=np.broadcast_to(np.eye(a.keys, width), (*lead, a.keys, width)).copy(),
        dtype=call.dtype,
        visibility=Visibility(np.ones((1, 1, 1, 1), dtype=bool)),
        head_map=tuple(range(a.query_heads)),
        grad_output=np.broadcast_to(np.eye(a.queries, width), (*lead, a.queries, width)).copy(),
        encoding="none",
        layout=Layout(),
        origin=call.origin,
    )


def _visible_mask_given(call: AttentionCall) -> AttentionCall | None:
    shown = _visible_mask(call)
    return None if shown is None else dropped(shown)


def _shows_mask(call: AttentionCall) -> bool:
    return not call.query.any() and call.bias is None and bool(call.visible.all())


def _fresh(call: AttentionCall, tensors: dict[str, np.ndarray], allowed: dict[str, np.ndarray], z: np.ndarray) -> bool:
    """Does the value gradient show a mask of this rate, and another one than z?"""
    assert call.dropout is not None
    queries, keys = call.score_shape[2:]
    found = np.swapaxes(tensors["grad_value"][..., :queries], -1, -2)
    bound = np.swapaxes(allowed["grad_value"][..., :queries], -1, -2)
    # The bound of a kept entry serves for all: a dropped one is exactly zero under the right mask.
    bound = np.broadcast_to(bound.max(initial=0.0), bound.shape)
    kept = 1.0 / (keys * (1.0 - call.dropout.probability))
    is_kept = np.abs(found - kept) <= bound
    is_mask = is_kept | (found == 0.0)
    return bool(is_mask.all()) and bool((is_kept != (z > 0)).any())


def _judged_with(
    call: AttentionCall, bench: Bench, tensors: dict[str, np.ndarray], seen_call: AttentionCall
) -> Outcome:
    """Hold output and gradients to the multiplier in `call.dropout`; name a fresh mask in the backward pass."""
    seen = bench.observe(seen_call) if not tensors else None
    found = dict(seen.tensors) if seen is not None else tensors
    allowed, oracle = bench.bounds(call), bench.oracle(call)
    names = [n for n in ("output", *GRADIENTS) if n in found and n in allowed]
    judged = tuple(oracle.judge(n, found[n], allowed[n]) for n in names)
    outcome = Outcome(judgements=judged)
    wrong = {j.tensor for j in judged if not j.inside}
    z = np.asarray(call.multiplier)
    if "grad_value" in wrong and "output" not in wrong and _shows_mask(call) and _fresh(call, found, allowed, z):
        return replace(
            outcome,
            broken="fresh mask in the backward pass: the value gradient shows another mask than the output",
        )
    return outcome


def _replayed(call: AttentionCall, bench: Bench) -> Outcome:
    if call.grad_output is None or call.dropout is None:
        return Outcome(skipped="no output gradient or no multiplier")
    seen = observed(call, bench)
    again = bench.observe(call)
    judged = [
        compare(f"{n}, run again", again.tensors[n], seen.tensors[n], bench.bounds(call)[n])
        for n in ("output", "grad_value")
        if n in again.tensors and n in seen.tensors
    ]
    return joined(_judged_with(call, bench, dict(seen.tensors), call), Outcome(judgements=tuple(judged)))


def _own_mask(call: AttentionCall, bench: Bench) -> Outcome:
    """Masks the subject draws itself, under several seeds: read off, replayed, and counted."""
    if not _shows_mask(call):
        return Outcome(skipped="the mask cannot be read off this call")
    reason = _needs_sampling(bench.subject.capabilities) or bench.uncovered(call)
    if reason is not None:
        return Outcome(skipped=reason)
    rng = call_rng(call, "own")
    p = float(rng.choice([0.25, 0.5, 0.75]))
    first = int(rng.integers(2**31))
    keys, kept, trials = call.score_shape[3], 0, 0
    outcomes, masks = [], []
    for seed in range(first, first + _SEEDS):
        seen = bench.observe(sampled_call(call, p, seed))
        broken = failure(seen, call, bench)
        if broken is not None:
            return Outcome(broken=broken, kernel=seen.kernel)
        keep = seen.tensors["output"][..., :keys] > 0
        masks.append(keep)
        kept, trials = kept + int(keep.sum()), trials + keep.size
        if seed < first + 2:
            realised = call.but(dropout=Dropout(p, multiplier(keep, p)))
            outcomes.append(_judged_with(realised, bench, dict(seen.tensors), call))
            again = bench.observe(sampled_call(call, p, seed))
            if again.error is not None or not np.array_equal(again.tensors["output"], seen.tensors["output"]):
                return Outcome(broken=f"seed {seed} drew another mask when it was replayed", kernel=seen.kernel)
    low, high = count_interval(trials, 1 - Fraction(p), FALSE_ALARM)
    if not low <= kept <= high:
        return Outcome(
            broken=f"dropout of probability {p} kept {kept} of {trials} weights: expected {low} to {high} "
            f"but for a chance of at most {float(FALSE_ALARM):g}"
        )
    # Two draws of one weight agree with this chance; all of them under all seeds, with its power.
    agreeing = Fraction(p) ** _SEEDS + (1 - Fraction(p)) ** _SEEDS
    if agreeing ** masks[0].size <= FALSE_ALARM and all(np.array_equal(m, masks[0]) for m in masks):
        return Outcome(broken=f"{_SEEDS} seeds drew the same mask")
    off = agree(call, bench, seen=bench.observe(sampled_call(call, 0.0, first)))
    return joined(*outcomes, off)


register(
    Property(
        id="dropout-mask-replayed",
        claim="The backward pass uses the multiplier of the forward pass, not a fresh one.",
        theorem="dropout_adjoint",
        check=_replayed,
        prepare=_visible_mask_given,
        needs=lambda c: needs.dropout(c) or needs.gradients(c),
        small=True,
    )
)
register(
    Property(
        id="dropout-own-mask",
        claim="Dropout that the subject draws keeps its rate, rescales, replays by seed and is off at probability 0.",
        theorem="dropout_multiplier_mean_one",
        also=("dropout_off_is_identity",),
        check=_own_mask,
        prepare=_visible_mask,
        needs=_needs_sampling,
        small=True,
    )
)
