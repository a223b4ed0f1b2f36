"""Dropout: after the normaliser, three different zeros, and weights returned as declared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attnspec.certify.properties import needs
from attnspec.certify.properties.agree import agree, compare, joined, observed, zero
from attnspec.certify.properties.explain import dot_scores, explained, output_of, without_modifiers
from attnspec.certify.properties.model import Bench, Outcome, Property, call_rng, register
from attnspec.certify.properties.surgery import whole_bias, with_mask
from attnspec.certify.subjects.claims import requires
from attnspec.pyspec import AttentionCall, Dropout, Oracle, Visibility
from attnspec.pyspec import attention as spec
from attnspec.pyspec.calls.formats import round_to
from attnspec.pyspec.domains import BallDomain, Float64Domain
from attnspec.pyspec.domains.ball import precision
from attnspec.pyspec.dropout import multiplier
from attnspec.pyspec.evaluate import lift_call
from attnspec.pyspec.oracle.bound import BoundDomain
from attnspec.pyspec.oracle.ledger import NUMPY_FLOAT64, Ledger

_needs_weights = requires("returned_weights")


def dropped(call: AttentionCall) -> AttentionCall:
    """A realised multiplier, and one row that loses every key."""
    call = without_modifiers(call)
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
    call = whole_bias(call)
    visible = np.array(call.visible)
    visible[:, :, 0, :3] = [False, True, True]
    lossy = dropped(with_mask(call, visible))
    assert lossy.dropout is not None
    z = np.array(lossy.dropout.multiplier)
    z[:, :, 0, 1:] = [0.0, *([1.0 / (1.0 - lossy.dropout.probability)] * (z.shape[-1] - 2))]
    if z.shape[2] > 1:
        z[:, :, 1] = 0.0
    return lossy.but(dropout=replace(lossy.dropout, multiplier=z))


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
        zero("grad_bias of rows that lost every key", gs[lost], allowed["grad_bias"][lost]),
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
    lossy = dropped(call)
    assert lossy.dropout is not None
    declared = str(call_rng(call, "returned").choice(["before_dropout", "after_dropout"]))
    return lossy.but(dropout=replace(lossy.dropout, returned_weights=declared))


def _returned_weights(call: AttentionCall, bench: Bench) -> Outcome:
    reason = _needs_weights(bench.subject.capabilities)
    if reason is not None or call.dropout is None or call.dropout.returned_weights == "none":
        return Outcome(skipped=reason or "the call asks for no weights")
    seen = observed(call, bench)
    if "weights" not in seen.tensors:
        return Outcome(broken="weights are missing", kernel=seen.kernel)
    if seen.tensors["weights"].shape != call.score_shape:
        shape = list(seen.tensors["weights"].shape)
        return Outcome(broken=f"weights have shape {shape}: expected {list(call.score_shape)}", kernel=seen.kernel)
    declared, found = call.dropout.returned_weights, seen.tensors["weights"]
    other = "after_dropout" if declared == "before_dropout" else "before_dropout"
    allowed, oracle = weights_bounds(call, bench.ledger_for(call.dtype)), WeightsOracle(call)
    judged = replace(oracle.judge(declared, found, allowed[declared]), tensor="weights")
    outcome = Outcome(judgements=(judged,), kernel=seen.kernel)
    if not judged.inside and oracle.judge(other, found, allowed[other]).inside:
        names = {"before_dropout": "before dropout", "after_dropout": "after dropout"}
        return replace(outcome, broken=f"weights {names[other]} returned as weights {names[declared]}")
    return outcome


def _whole_values(call: AttentionCall) -> AttentionCall | None:
    """Values of small integers, which a small integer may be added to exactly, under a realised multiplier."""
    if 0 in (*call.score_shape, call.axes.value_width):
        return None
    value = call_rng(call, "values").integers(-4, 5, call.value.shape).astype(np.float64)
    return dropped(call.but(value=value))


def _value_shift(call: AttentionCall, bench: Bench) -> Outcome:
    """The output moves by the constant times the sum of the consumed weights, which is not one."""
    rng = call_rng(call, "shift")
    constant = rng.integers(1, 4, (1, 1, 1, call.axes.value_width)) * rng.choice([-1.0, 1.0])
    moved = call.but(value=call.value + constant)
    if not np.array_equal(round_to(call.dtype, moved.value), moved.value):
        return Outcome(skipped="the moved values are not exact in this format")
    runs = [observed(c, bench) for c in (call, moved)]
    used, own = _weights(BoundDomain(NUMPY_FLOAT64), call)["after_dropout"]
    with np.errstate(all="ignore"):
        expected = used.sum(axis=-1, keepdims=True) * constant
        found = runs[1].tensors["output"] - runs[0].tensors["output"]
        allowed = bench.bounds(call)["output"] + bench.bounds(moved)["output"]
        # This side is computed in float64: the weights' own error, their sum, and the difference of two outputs.
        rounding = 2.0**-52 * (used.shape[-1] + 2) * np.abs(used).sum(axis=-1, keepdims=True)
        allowed = allowed + (own.sum(axis=-1, keepdims=True) + rounding) * np.abs(constant) + 2.0**-52 * np.abs(found)
    allowed = np.where(np.isnan(allowed), np.inf, allowed)
    judged = compare("output moved", found, np.broadcast_to(expected, found.shape), allowed)
    return Outcome(judgements=(judged,), kernel=runs[0].kernel)


register(
    Property(
        id="dropout-after-normaliser",
        claim="Dropout scales normalised weights; it neither removes keys before the softmax nor renormalises after.",
        theorem="dropout_multiplier_mean_one",
        check=_after_normaliser,
        prepare=dropped,
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
        id="dropout-returned-weights",
        claim="Returned weights are those that the call declares: before dropout, or after it.",
        theorem="dropout_off_is_identity",
        check=_returned_weights,
        prepare=_returned,
        needs=_needs_weights,
        small=True,
    )
)
register(
    Property(
        id="dropout-value-shift",
        claim="A constant added to every value comes out times the row sum that dropout left, not times one.",
        theorem="forward_linear_in_values",
        check=_value_shift,
        prepare=_whole_values,
        needs=needs.dropout,
        small=True,
    )
)
