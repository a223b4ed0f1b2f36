"""Masked rectangular attention: forward map, its directional derivative (JVP) and its transpose (backward).

How a query and a key become one number is a part that can be exchanged (`Score`); Lean has the dot product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import numpy as np

from attnspec.pyspec import alibi
from attnspec.pyspec.domain import Domain

LEAN_MODULES = ("AttnSpec.Attention",)

M = TypeVar("M")


@dataclass(frozen=True)
class Inputs(Generic[M]):
    """What is differentiated: query [..,Q,Dk], key [..,K,Dk], value [..,K,Dv], bias [..,Q,K] or None (zero).

    slopes: ALiBi slopes [1,Hq,1,1] or None (zero; Lean: AttnSpec.Inputs.sloped). parameters: learned matrices of the
    score by name (a dot product has none). Also the type of tangents and of gradients. Lean: AttnSpec.Inputs.
    """

    query: M
    key: M
    value: M
    bias: M | None = None
    parameters: Mapping[str, M] = field(default_factory=dict)
    slopes: M | None = None


# From the gradient of the unscaled scores [..,Q,K] to those of query, key, and the parameters by name.
Pullback = Callable[[M], tuple[M, M, Mapping[str, M]]]


class Score(Protocol):
    """How a query and a key become one number, before scale, cap and bias (attnspec.pyspec.scores has four ways)."""

    def pair(self, dom: Domain[M], x: Inputs[M]) -> tuple[M, Pullback[M]]:
        """Unscaled scores [..,Q,K], and the transpose of their derivative there."""

    def jvp(self, dom: Domain[M], x: Inputs[M], dx: Inputs[M]) -> M:
        """Derivative of the unscaled scores at x along dx."""


class DotScore:
    """Q Kᵀ. Lean: AttnSpec.mulT."""

    def pair(self, dom: Domain[M], x: Inputs[M]) -> tuple[M, Pullback[M]]:
        """Q Kᵀ, and the gradients G K and Gᵀ Q."""
        return dom.mul_t("dot", x.query, x.key), lambda g: (
            dom.mul("grad_query", g, x.key),
            dom.t_mul("grad_key", g, x.query),
            {},
        )

    def jvp(self, dom: Domain[M], x: Inputs[M], dx: Inputs[M]) -> M:
        """dQ Kᵀ + Q dKᵀ."""
        return dom.add("scaled", dom.mul_t("dot", dx.query, x.key), dom.mul_t("dot", x.query, dx.key))


DOT = DotScore()


@dataclass(frozen=True)
class Params(Generic[M]):
    """What is held fixed: scale, visible [..,Q,K], the realised dropout multiplier or None (ones), the softcap or None,
    the way in which queries and keys are scored, and the distances [Q,K] of ALiBi slopes. Lean: AttnSpec.Params.
    """

    scale: float
    visible: np.ndarray
    multiplier: M | None = None
    softcap: float | None = None
    score: Score = DOT
    away: np.ndarray | None = None


def scaled_scores(dom: Domain[M], p: Params[M], x: Inputs[M]) -> M:
    """α Q Kᵀ, before cap and bias. Lean: AttnSpec.Softcap.scaledScores."""
    return dom.times("scaled", p.scale, p.score.pair(dom, x)[0])


def _cap_and_bias(dom: Domain[M], p: Params[M], x: Inputs[M], scaled: M) -> M:
    capped = scaled if p.softcap is None else dom.softcap(p.softcap, scaled)
    parts = [capped] if x.bias is None else [capped, x.bias]
    if x.slopes is not None and p.away is not None:
        parts.append(alibi.slope_bias(dom, x.slopes, p.away))
    biased = capped if len(parts) == 1 else dom.add_up("biased", parts)
    dom.keep(scaled=scaled, capped=capped, biased=biased)
    return biased


def scores(dom: Domain[M], p: Params[M], x: Inputs[M]) -> M:
    """s = α Q Kᵀ + B, or c tanh(α Q Kᵀ / c) + B under a softcap c, less slope times distance. Lean: AttnSpec.scores."""
    return _cap_and_bias(dom, p, x, scaled_scores(dom, p, x))


def weights(dom: Domain[M], p: Params[M], x: Inputs[M]) -> M:
    """P = softmax of the scores over visible keys. Lean: AttnSpec.weights."""
    return dom.softmax(p.visible, scores(dom, p, x))


def consumed(dom: Domain[M], p: Params[M], w: M) -> M:
    """P ⊙ Z, what the value product consumes. Lean: AttnSpec.consumed."""
    return w if p.multiplier is None else dom.hadamard("consumed", w, p.multiplier)


def forward(dom: Domain[M], p: Params[M], x: Inputs[M]) -> M:
    """O = (P ⊙ Z) V. Lean: AttnSpec.forward."""
    return dom.output(dom.consumed_weights(consumed(dom, p, weights(dom, p, x))), x.value)


def log_sum_exp(dom: Domain[M], p: Params[M], x: Inputs[M]) -> M:
    """L = log-sum-exp of the scores over visible keys, one column."""
    return dom.lse(p.visible, scores(dom, p, x))


def scores_jvp(dom: Domain[M], p: Params[M], x: Inputs[M], dx: Inputs[M]) -> M:
    """ds = α (dQ Kᵀ + Q dKᵀ) + dB, the first term times the softcap's slope. Lean: AttnSpec.scoresJvp."""
    scaled = dom.times("scaled", p.scale, p.score.jvp(dom, x, dx))
    if p.softcap is not None:
        scaled = dom.softcap_grad(p.softcap, scaled_scores(dom, p, x), scaled)
    parts = [scaled] if dx.bias is None else [scaled, dx.bias]
    if dx.slopes is not None and p.away is not None:
        parts.append(alibi.slope_bias(dom, dx.slopes, p.away))
    return scaled if len(parts) == 1 else dom.add_up("biased", parts)


def weights_jvp(dom: Domain[M], p: Params[M], x: Inputs[M], dx: Inputs[M]) -> M:
    """dP_i = P_i ⊙ (ds_i - ⟨P_i, ds_i⟩). Lean: AttnSpec.weightsJvp."""
    return dom.center(weights(dom, p, x), scores_jvp(dom, p, x, dx))


def jvp(dom: Domain[M], p: Params[M], x: Inputs[M], dx: Inputs[M]) -> M:
    """dO = (dP ⊙ Z) V + (P ⊙ Z) dV. Lean: AttnSpec.jvp; forward_over_duals says it is the derivative."""
    through_weights = dom.mul("output", consumed(dom, p, weights_jvp(dom, p, x, dx)), x.value)
    through_value = dom.mul("output", consumed(dom, p, weights(dom, p, x)), dx.value)
    return dom.add("output", through_weights, through_value)


def weights_grad(dom: Domain[M], p: Params[M], x: Inputs[M], grad_output: M) -> M:
    """Gp = Z ⊙ (G Vᵀ). Lean: AttnSpec.weightsGrad."""
    grad = dom.mul_t("consumed_grad", grad_output, x.value)
    dom.keep(consumed_grad=grad)
    return grad if p.multiplier is None else dom.hadamard("weights_grad", grad, p.multiplier)


@dataclass(frozen=True)
class Evaluation(Generic[M]):
    """Output, LSE (a column), weights before and after dropout and, for a grad_output, the gradients of the inputs."""

    output: M
    lse: M | None
    weights: M
    consumed: M
    gradient: Inputs[M] | None


def evaluate(
    dom: Domain[M], p: Params[M], x: Inputs[M], grad_output: M | None, *, with_lse: bool = True
) -> Evaluation[M]:
    """Forward, LSE and backward in one pass, sharing scores and weights."""
    unscaled, pullback = p.score.pair(dom, x)
    before_cap = dom.times("scaled", p.scale, unscaled)
    s = _cap_and_bias(dom, p, x, before_cap)
    w = dom.softmax(p.visible, s)
    c = consumed(dom, p, w)
    used = dom.consumed_weights(c)
    out = dom.output(used, x.value)
    dom.keep(dot=unscaled, weights=w, consumed=used, output=out)
    lse = None
    if with_lse:
        lse = dom.lse(p.visible, s)
        dom.keep(lse=lse)
    if grad_output is None:
        return Evaluation(out, lse, w, c, None)
    w_back = dom.backward_weights(p.visible, s, w)
    c_back = dom.consumed_weights(consumed(dom, p, w_back))
    gp = weights_grad(dom, p, x, grad_output)
    gs = dom.scores_grad(w_back, gp, out, grad_output)
    through_cap = gs if p.softcap is None else dom.softcap_grad(p.softcap, before_cap, gs)
    scaled = dom.times("scaled_grad", p.scale, through_cap)
    dom.keep(weights_grad=gp, scores_grad=gs, capped_grad=through_cap, scaled_grad=scaled)
    grad_query, grad_key, of_parameters = pullback(scaled)
    grad_value = dom.t_mul("grad_value", c_back, grad_output)
    of_slopes = None
    if x.slopes is not None and p.away is not None:
        of_slopes = alibi.slope_gradient(dom, gs, p.away, p.visible.shape[0])
    gradient = Inputs(grad_query, grad_key, grad_value, gs, of_parameters, of_slopes)
    return Evaluation(out, lse, w, c, gradient)


def backward(dom: Domain[M], p: Params[M], x: Inputs[M], grad_output: M) -> Inputs[M]:
    """gQ = α Gs K, gK = α Gsᵀ Q, gV = (P ⊙ Z)ᵀ G, gB = Gs with Gs = P ⊙ (Gp - ⟨P, Gp⟩).

    Under a softcap gQ and gK take Gs times its slope 1 - tanh², the bias, added afterwards, takes Gs itself.
    Lean: AttnSpec.backward; jvp_backward_pairing says it is the transpose of `jvp`.
    """
    result = evaluate(dom, p, x, grad_output, with_lse=False).gradient
    assert result is not None
    return result
