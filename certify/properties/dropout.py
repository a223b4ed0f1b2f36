"""Dropout: after the normaliser, the same mask in both passes, three different zeros, and a rate that is kept.

Where a subject draws its own mask, equal scores and unit values make it visible: with P = 1/n and V = 1, the output
is P ⊙ Z itself, and with G = 1 so is the value gradient. What is then claimed of chance is claimed with the
probability of a false alarm stated here, from exact binomial tails: a right subject is refuted at most so often.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from certify.properties import needs
from certify.properties.agree import GRADIENTS, agree, compare, failure, joined
from certify.properties.explain import dot_scores, explained, output_of
from certify.properties.model import Bench, Outcome, Property, call_rng, register
from certify.properties.scores import _whole_bias
from certify.properties.surgery import with_mask
from certify.subject import Capabilities
from certify.subjects.families import sampled_call
from pyspec import AttentionCall, Dropout, Layout, Oracle, Visibility
from pyspec import attention as spec
from pyspec.domains import BallDomain, BoundDomain, Float64Domain
from pyspec.domains.ball import precision
from pyspec.dropout import count_interval, multiplier
from pyspec.evaluate import lift_call
from pyspec.ledger import NUMPY_FLOAT64, Ledger

# A right subject fails one check of chance at most this often.
FALSE_ALARM = Fraction(1, 10**9)
_SEEDS = 16


def _needs_sampling(c: Capabilities) -> str | None:
    return None if getattr(c, "samples_dropout", False) else "dropout of its own not claimed"


def _needs_weights(c: Capabilities) -> str | None:
    return needs.dropout(c) or (None if getattr(c, "returns_weights", False) else "returned weights not claimed")


def _dropped(call: AttentionCall) -> AttentionCall:
    """A realised multiplier, and one row that loses every key."""
    rng = call_rng(call, "mask")
    p = float(rng.choice([0.25, 0.5, 0.75]))
    keep = rng.random(call.score_shape) >= p
    if keep.size:
        keep[tuple(int(rng.integers(n)) for n in call.score_shape[:3])] = False
    return call.but(dropout=Dropout(p, multiplier(keep, p)))


def _after_normaliser(call: AttentionCall, bench: Bench) -> Outcome:
    outcome = agree(call, bench, tensors=("output", "lse"))
    if not outcome.refuted or outcome.broken is not None or call.dropout is None:
        return outcome
    seen, allowed = bench.observe(call), bench.bounds(call)
    z, u = call.multiplier, dot_scores(call)
    assert z is not None
    rate = call.dropout.probability

    def divided(p: np.ndarray) -> np.ndarray:
        total = (p * (z > 0)).sum(axis=-1, keepdims=True)
        return p * (z > 0) / np.where(total == 0.0, 1.0, total)

    def whole(p: np.ndarray) -> np.ndarray:
        return np.where((p * z).sum(axis=-1, keepdims=True) > 0, divided(p), p)

    used = {
        "dropout before the normaliser": divided,
        "dropout renormalised, whole row when all is dropped": whole,
        "kept weights not rescaled": lambda p: p * (z > 0),
        "dropped and kept exchanged": lambda p: p * (z == 0) / (1.0 - rate),
        "dropout ignored": lambda p: p,
    }
    wrong = {n: {"output": output_of(call, u, consumed=f)} for n, f in used.items()}
    return explained(outcome, seen.tensors, allowed, wrong)


def _three(call: AttentionCall) -> AttentionCall | None:
    """A full bias, whose gradient is that of the scores; a row with all kinds of keys, and one that lost all."""
    if 0 in call.score_shape or call.axes.keys < 3 or call.grad_output is None:
        return None
    call = _whole_bias(call)
    visible = np.array(call.visible)
    visible[:, :, 0, :3] = [False, True, True]
    dropped = _dropped(with_mask(call, visible))
    assert dropped.dropout is not None
    z = np.array(dropped.dropout.multiplier)
    z[:, :, 0, 1:] = [0.0, *([1.0 / (1.0 - dropped.dropout.probability)] * (z.shape[-1] - 2))]
    if z.shape[2] > 1:
        z[:, :, 1] = 0.0
    return dropped.but(dropout=replace(dropped.dropout, multiplier=z))


def _three_zeros(call: AttentionCall, bench: Bench) -> Outcome:
    if call.dropout is None or call.bias is None or call.bias.shape != call.score_shape or call.grad_output is None:
        return Outcome(skipped="no full bias and multiplier to tell the three zeros apart")
    outcome = agree(call, bench, tensors=("output", "grad_bias", "grad_query", "grad_key"))
    if outcome.skipped is not None or outcome.broken is not None:
        return outcome
    seen, allowed = bench.observe(call), bench.bounds(call)
    gs = seen.tensors["grad_bias"]
    z = np.broadcast_to(np.asarray(call.multiplier), call.score_shape)
    lost = ~((z > 0) & call.visible).any(axis=-1)
    hidden = gs[~call.visible]
    out = seen.tensors["output"][lost]
    extra = (
        compare("grad_bias of illegal keys", hidden, np.zeros_like(hidden), np.zeros_like(hidden)),
        compare("output of rows that lost every key", out, np.zeros_like(out), np.zeros_like(out)),
        compare("grad_bias of rows that lost every key", gs[lost], np.zeros_like(gs[lost]), np.zeros_like(gs[lost])),
    )
    outcome = joined(outcome, Outcome(judgements=extra, kernel=outcome.kernel))
    if not outcome.refuted:
        return outcome
    dom = Float64Domain()
    params, inputs = lift_call(dom, call)
    p = spec.weights(dom, params, inputs)
    kept = call.but(visibility=Visibility(call.visible & (z > 0)))
    params_kept, _ = lift_call(dom, kept)
    q = spec.weights(dom, replace(params_kept, multiplier=None), inputs)
    through = call.grad_output @ np.swapaxes(inputs.value, -1, -2)
    right = dom.center(p, through * z)
    return explained(
        outcome,
        seen.tensors,
        allowed,
        {
            "dropped keys treated as illegal": {"grad_bias": dom.center(q, through)},
            "score gradient of dropped keys set to zero": {"grad_bias": right * (z > 0)},
            "multiplier left out of the backward pass": {"grad_bias": dom.center(p, through)},
        },
    )


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
    return None if shown is None else _dropped(shown)


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
    reason = bench.uncovered(call)
    if reason is not None or call.grad_output is None or call.dropout is None:
        return Outcome(skipped=reason or "no output gradient or no multiplier")
    seen = bench.observe(call)
    broken = failure(seen, call, bench)
    if broken is not None:
        return Outcome(broken=broken, kernel=seen.kernel)
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


class WeightsOracle(Oracle):
    """Exact weights before and after dropout, under the names "before_dropout" and "after_dropout"."""

    def fast(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Float64 values and rigorous errors."""
        if self._fast is None:
            self._fast = _weights(BoundDomain(NUMPY_FLOAT64), self.call)
        return self._fast

    def balls(self, bits: int) -> dict[str, np.ndarray]:
        """Enclosures at that precision."""
        if bits not in self._balls:
            dom = BallDomain()
            with precision(bits):
                params, inputs = lift_call(dom, self.call)
                w = spec.weights(dom, params, inputs)
                self._balls[bits] = {"before_dropout": w, "after_dropout": spec.consumed(dom, params, w)}
        return self._balls[bits]


def _weights(dom: BoundDomain, call: AttentionCall) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    params, inputs = lift_call(dom, call)
    w = spec.weights(dom, params, inputs)
    return {"before_dropout": dom.lower(w), "after_dropout": dom.lower(spec.consumed(dom, params, w))}


def weights_bounds(call: AttentionCall, ledger: Ledger) -> dict[str, np.ndarray]:
    """Allowed error of returned weights: the ledger's own, and the cast of a returned tensor to storage."""
    stores = tuple(dict.fromkeys((*ledger.stores, "weights", "consumed")))
    return {n: error for n, (_, error) in _weights(BoundDomain(replace(ledger, stores=stores)), call).items()}


def _returned(call: AttentionCall) -> AttentionCall:
    dropped = _dropped(call)
    assert dropped.dropout is not None
    declared = str(call_rng(call, "returned").choice(["before_dropout", "after_dropout"]))
    return dropped.but(dropout=replace(dropped.dropout, returned_weights=declared))


def _returned_weights(call: AttentionCall, bench: Bench) -> Outcome:
    reason = _needs_weights(bench.subject.capabilities) or bench.uncovered(call)
    if reason is not None or call.dropout is None or call.dropout.returned_weights == "none":
        return Outcome(skipped=reason or "the call asks for no weights")
    seen = bench.observe(call)
    broken = failure(seen, call, bench)
    if broken is None and "weights" not in seen.tensors:
        broken = "weights are missing"
    elif broken is None and seen.tensors["weights"].shape != call.score_shape:
        broken = f"weights have shape {list(seen.tensors['weights'].shape)}: expected {list(call.score_shape)}"
    if broken is not None:
        return Outcome(broken=broken, kernel=seen.kernel)
    declared, found = call.dropout.returned_weights, seen.tensors["weights"]
    other = "after_dropout" if declared == "before_dropout" else "before_dropout"
    allowed, oracle = weights_bounds(call, bench.ledger_for(call.dtype)), WeightsOracle(call)
    judged = replace(oracle.judge(declared, found, allowed[declared]), tensor="weights")
    outcome = Outcome(judgements=(judged,), kernel=seen.kernel)
    if not judged.inside and oracle.judge(other, found, allowed[other]).inside:
        names = {"before_dropout": "before dropout", "after_dropout": "after dropout"}
        return replace(outcome, broken=f"weights {names[other]} returned as weights {names[declared]}")
    return outcome


register(
    Property(
        id="dropout-after-normaliser",
        claim="Dropout scales normalised weights; it neither removes keys before the softmax nor renormalises after.",
        theorem="dropout_multiplier_mean_one",
        check=_after_normaliser,
        prepare=_dropped,
        needs=needs.dropout,
        small=True,
    )
)
register(
    Property(
        id="dropout-three-zeros",
        claim="An illegal key, a dropped key and a row that lost every key have three different score gradients.",
        theorem="masked_score_gradient_zero",
        also=("dropout_adjoint", "softmax_derivative_is_centring"),
        check=_three_zeros,
        prepare=_three,
        needs=lambda c: needs.dropout(c) or needs.bias_gradient(c),
        small=True,
    )
)
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
register(
    Property(
        id="dropout-returned-weights",
        claim="Returned weights are those that the call declares: before dropout, or after it.",
        theorem="dropout_off_is_identity",
        check=_returned_weights,
        prepare=_returned,
        needs=_needs_weights,
        small=True,
    )
)
