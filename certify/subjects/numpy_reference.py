"""The numpy reference: attention written plainly, one head at a time, in float64 with one final cast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from attnspec.certify.claims import Capabilities
from attnspec.certify.conventions.by_call import loaded_program
from attnspec.certify.conventions.program import Program
from attnspec.certify.observation import Observation
from attnspec.certify.subjects.numpy_run import bias_gradient, numpy_identity, observed, operands, stored
from attnspec.pyspec import AttentionCall, Ledger
from attnspec.pyspec.calls.formats import FORMATS
from attnspec.pyspec.oracle.ledger import named_ledgers

CAPABILITIES = Capabilities(
    dtypes=tuple(FORMATS),
    any_head_map=True,
    dropout_multiplier=True,
    returns_lse=True,
    isolates_poison=True,
    deterministic=True,
    softcap=True,
    sink=True,
    slopes=True,
)


FORWARD_STAGES = ("dot", "scaled", "capped", "biased", "weights", "consumed")
BACKWARD_STAGES = ("consumed_grad", "weights_grad", "scores_grad", "capped_grad", "scaled_grad")


@dataclass(frozen=True)
class NumpyReference:
    """Runs every call that can be written down; the first thing to certify on a new machine."""

    name: str = "numpy-reference"
    device: str = "cpu"

    @property
    def capabilities(self) -> Capabilities:
        return CAPABILITIES

    def identity(self) -> dict[str, str]:
        return numpy_identity()

    def ledger(self, dtype: str) -> Ledger:
        return named_ledgers(dtype)["float64-inside"]

    def run(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Observation:
        given = operands(call, raw)
        with np.errstate(all="ignore"):
            exact = _attention(call, given["query"], given["key"], given["value"])
        return observed(call, exact)

    def stages(self, call: AttentionCall) -> dict[str, np.ndarray]:
        """What it holds on the way, in the shapes of attnspec.pyspec.oracle.trace; a sink's column is last."""
        found: dict[str, np.ndarray] = {}
        with np.errstate(all="ignore"):
            exact = _attention(call, call.query, call.key, call.value, found)
        exact["lse"] = exact["lse"][..., None]
        return {**found, **stored(call, exact)}

    def program(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Program:
        return loaded_program(call, raw, self.name)


def _attention(
    call: AttentionCall,
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    stages: dict[str, np.ndarray] | None = None,
) -> dict[str, np.ndarray]:
    """Forward, LSE and backward head by head; only visible keys are ever touched. `stages` is filled when given."""
    a = call.axes
    # Stages have a column for the sink, in which only its logit, its weight and its gradient differ from zero.
    wide = (*call.score_shape[:3], a.keys + (call.sink is not None))
    shown = FORWARD_STAGES if call.grad_output is None else (*FORWARD_STAGES, *BACKWARD_STAGES)
    if stages is not None:
        stages |= {name: np.zeros(wide) for name in shown}
    out = np.zeros((a.batch, a.query_heads, a.queries, a.value_width))
    lse = np.full(out.shape[:3], -np.inf)
    grads = {"query": np.zeros(query.shape), "key": np.zeros(key.shape), "value": np.zeros(value.shape)}
    grad_bias, grad_sink = np.zeros(call.score_shape), np.zeros(a.query_heads)
    sink = np.full(a.query_heads, -np.inf) if call.sink is None else call.sink
    bias = np.zeros(call.score_shape) if call.bias is None else np.broadcast_to(call.bias, call.score_shape)
    if call.slopes is not None:
        away = np.abs(np.arange(a.queries)[:, None] + a.keys - a.queries - np.arange(a.keys))
        bias = bias - call.slopes[:, None, None] * away
    keep = np.ones(call.score_shape) if call.multiplier is None else call.multiplier
    for b, h, i in np.ndindex(call.score_shape[:3]):
        g = call.head_map[h]
        seen = np.flatnonzero(call.visible[b, h, i])
        if seen.size == 0:
            # Nothing but the sink, if there is one, takes mass.
            lse[b, h, i] = sink[h]
            if stages is not None and call.sink is not None:
                stages["biased"][b, h, i, -1] = sink[h]
                stages["weights"][b, h, i, -1] = stages["consumed"][b, h, i, -1] = 1.0
            continue
        q, k, v = query[b, h, i], key[b, g, seen], value[b, g, seen]
        dot = k @ q
        scaled = call.scale_value * dot
        capped, slope = _capped(scaled, call.softcap)
        score = capped + bias[b, h, i, seen]
        top = max(score.max(), sink[h])
        weight, sunk = np.exp(score - top), np.exp(sink[h] - top)
        mass = weight.sum() + sunk
        lse[b, h, i] = top + np.log(mass)
        weight /= mass
        z = keep[b, h, i, seen]
        if stages is not None:
            for name, stage in zip(FORWARD_STAGES, (dot, scaled, capped, score, weight, weight * z), strict=True):
                stages[name][b, h, i, seen] = stage
            if call.sink is not None:
                stages["biased"][b, h, i, -1] = sink[h]
                stages["weights"][b, h, i, -1] = stages["consumed"][b, h, i, -1] = sunk / mass
        out[b, h, i] = (weight * z) @ v
        if call.grad_output is None:
            continue
        grad_out = call.grad_output[b, h, i]
        through = z * (v @ grad_out)
        grad_score = weight * (through - weight @ through)
        grad_scaled = call.scale_value * slope * grad_score
        grads["query"][b, h, i] = grad_scaled @ k
        np.add.at(grads["key"][b, g], seen, np.outer(grad_scaled, q))
        np.add.at(grads["value"][b, g], seen, np.outer(weight * z, grad_out))
        grad_bias[b, h, i, seen] = grad_score
        grad_sink[h] -= sunk / mass * (weight @ through)
        if stages is not None:
            passed = (v @ grad_out, through, grad_score, slope * grad_score, grad_scaled)
            for name, stage in zip(BACKWARD_STAGES, passed, strict=True):
                stages[name][b, h, i, seen] = stage
            if call.sink is not None:
                for name in ("scores_grad", "capped_grad"):
                    stages[name][b, h, i, -1] = -sunk / mass * (weight @ through)
                stages["scaled_grad"][b, h, i, -1] = -call.scale_value * sunk / mass * (weight @ through)
    result = {"output": out, "lse": lse}
    if call.grad_output is not None:
        result.update({f"grad_{n}": g for n, g in grads.items()})
        if call.bias is not None:
            result["grad_bias"] = bias_gradient(call, grad_bias)
        if call.sink is not None:
            result["grad_sink"] = grad_sink
        if call.slopes is not None:
            result["grad_slopes"] = -(grad_bias * away).sum(axis=(0, 2, 3))
    return result


def _capped(score: np.ndarray, cap: float | None) -> tuple[np.ndarray, np.ndarray]:
    """The scores under a softcap, and its slope."""
    if cap is None:
        return score, np.ones_like(score)
    inner = np.tanh(score / cap)
    return cap * inner, 1.0 - inner * inner
