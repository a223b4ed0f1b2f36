"""Dropout: after the normaliser, three different zeros, and weights returned as declared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from attnspec.certify.claims import requires
from attnspec.certify.trials.diagnosis import Tensors, dot_scores, fitting, output_of
from attnspec.certify.trials.expectations import Moved, Values, zeros
from attnspec.certify.trials.property import Trials, claim
from attnspec.certify.trials.trial import Trial
from attnspec.pyspec import AttentionCall, Dropout, Oracle, Visibility
from attnspec.pyspec import attention as spec
from attnspec.pyspec.calls.formats import round_to
from attnspec.pyspec.domains import Float64Domain
from attnspec.pyspec.dropout import multiplier
from attnspec.pyspec.evaluate import lift_call
from attnspec.strategies.derived import call_rng, whole_bias, with_mask


def dropped(call: AttentionCall) -> AttentionCall:
    """A realised multiplier, and one row that loses every key."""
    rng = call_rng(call, "mask")
    p = float(rng.choice([0.25, 0.5, 0.75]))
    keep = rng.random(call.score_shape) >= p
    if keep.size:
        keep[tuple(int(rng.integers(n)) for n in call.score_shape[:3])] = False
    return call.but(dropout=Dropout(p, multiplier(keep, p)))


def _other_dropouts(call: AttentionCall, observed: Tensors, allowed: Tensors) -> Iterable[str]:
    if call.dropout is None:
        return []
    z, u, rate = call.multiplier, dot_scores(call), call.dropout.probability
    assert z is not None

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
    return fitting({n: {"output": output_of(call, u, consumed=f)} for n, f in used.items()}, observed, allowed)


@claim(
    "dropout-after-normaliser",
    "Dropout scales normalised weights; it neither removes keys before the softmax nor renormalises after.",
    theorem="dropout_multiplier_mean_one",
    prepare=dropped,
    needs=requires("dropout"),
    diagnose=_other_dropouts,
    small=True,
)
def dropout_after_normaliser(call: AttentionCall) -> Trials:
    yield Trial(call, tensors=("output", "lse"))


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


def _other_zeros(call: AttentionCall, observed: Tensors, allowed: Tensors) -> Iterable[str]:
    z = call.multiplier
    assert z is not None
    assert call.grad_output is not None
    dom = Float64Domain()
    params, inputs = lift_call(dom, call)
    p = spec.weights(dom, params, inputs)
    kept, _ = lift_call(dom, call.but(visibility=Visibility(call.visible & (z > 0))))
    q = spec.weights(dom, replace(kept, multiplier=None), inputs)
    through = call.grad_output @ np.swapaxes(inputs.value, -1, -2)
    wrong = {
        "dropped keys treated as illegal": dom.center(q, through),
        "score gradient of dropped keys set to zero": dom.center(p, through * z) * (z > 0),
        "multiplier left out of the backward pass": dom.center(p, through),
    }
    return fitting({n: {"grad_bias": gs} for n, gs in wrong.items()}, observed, allowed)


@claim(
    "dropout-three-zeros",
    "An illegal key, a dropped key and a row that lost every key have three different score gradients.",
    theorem="masked_score_gradient_zero",
    also=("dropout_adjoint", "softmax_derivative_is_centring"),
    prepare=_three,
    needs=requires("dropout", "bias_gradient"),
    diagnose=_other_zeros,
    small=True,
)
def dropout_three_zeros(call: AttentionCall) -> Trials:
    if call.dropout is None or call.bias is None or call.bias.shape != call.score_shape or call.grad_output is None:
        return "no full bias and multiplier to tell the three zeros apart"
    lost = ~((np.asarray(call.multiplier) > 0) & call.visible).any(axis=-1, keepdims=True)
    nothing = np.zeros((1, 1, 1, 1))
    expect = (
        Values("grad_bias", nothing, ~call.visible, "nothing"),
        Values("output", nothing, lost, "nothing"),
        zeros("grad_bias", lost),
    )
    yield Trial(call, tensors=("output", "grad_bias", "grad_query", "grad_key"), expect=expect)


def _returned(call: AttentionCall) -> AttentionCall:
    lossy = dropped(call)
    assert lossy.dropout is not None
    declared = str(call_rng(call, "returned").choice(["before_dropout", "after_dropout"]))
    return lossy.but(dropout=replace(lossy.dropout, returned_weights=declared))


def _other_weights(call: AttentionCall, observed: Tensors, allowed: Tensors) -> Iterable[str]:
    assert call.dropout is not None
    declared = call.dropout.returned_weights
    other = {"before_dropout": "after_dropout", "after_dropout": "before_dropout"}[declared]
    exact = Oracle(call.but(dropout=replace(call.dropout, returned_weights=other))).fast()["weights"][0]
    words = {"before_dropout": "before dropout", "after_dropout": "after dropout"}
    name = f"weights {words[other]} returned as weights {words[declared]}"
    return fitting({name: {"weights": exact}}, observed, allowed)


@claim(
    "dropout-returned-weights",
    "Returned weights are those that the call declares: before dropout, or after it.",
    theorem="dropout_off_is_identity",
    prepare=_returned,
    needs=requires("dropout", "returned_weights"),
    diagnose=_other_weights,
    small=True,
)
def dropout_returned_weights(call: AttentionCall) -> Trials:
    if call.dropout is None or call.dropout.returned_weights == "none":
        return "the call asks for no weights"
    yield Trial(call, tensors=("weights",))


def _whole_values(call: AttentionCall) -> AttentionCall | None:
    """Values of small integers, which a small integer may be added to exactly, under a realised multiplier."""
    if 0 in (*call.score_shape, call.axes.value_width):
        return None
    value = call_rng(call, "values").integers(-4, 5, call.value.shape).astype(np.float64)
    return dropped(call.but(value=value))


@claim(
    "dropout-value-shift",
    "A constant added to every value comes out times the row sum that dropout left, not times one.",
    theorem="forward_linear_in_values",
    prepare=_whole_values,
    needs=requires("dropout"),
    small=True,
)
def dropout_value_shift(call: AttentionCall) -> Trials:
    """The output moves by the constant times the sum of the consumed weights, which is not one."""
    rng = call_rng(call, "shift")
    constant = rng.integers(1, 4, (1, 1, 1, call.axes.value_width)) * rng.choice([-1.0, 1.0])
    moved = call.but(value=call.value + constant)
    if not np.array_equal(round_to(call.dtype, moved.value), moved.value):
        return "the moved values are not exact in this format"
    if call.dropout is None:
        return "no multiplier"
    weights = Oracle(call.but(dropout=replace(call.dropout, returned_weights="after_dropout"))).fast()["weights"]
    used, own = weights
    with np.errstate(all="ignore"):
        expected = used.sum(axis=-1, keepdims=True) * constant
        # This side is computed in float64: the weights' own error, and their sum.
        rounding = 2.0**-52 * (used.shape[-1] + 2) * np.abs(used).sum(axis=-1, keepdims=True)
        error = (own.sum(axis=-1, keepdims=True) + rounding) * np.abs(constant)
    yield Trial(moved, other=call, tensors=(), expect=(Moved("output", expected, error),))
