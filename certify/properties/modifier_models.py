"""Attention with a softcap and a sink in float64, right and wrong in named ways, to name what a refuted subject did."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attnspec.certify.trials.diagnosis import dot_scores
from attnspec.pyspec import AttentionCall


@dataclass(frozen=True)
class Way:
    """How scores are capped and what the sink is taken for.

    cap: "scaled" (right), "ignored", "unscaled" (before the scale), "biased" (after the bias), "masked" (after the
    mask, so that -inf becomes -c). slope: does the backward pass multiply by the cap's slope? sink: "mass" (right),
    "ignored", or "value" (a key whose value is that of key 0).
    """

    cap: str = "scaled"
    slope: bool = True
    sink: str = "mass"


def modelled(call: AttentionCall, way: Way) -> dict[str, np.ndarray]:
    """Output and LSE, and the gradients of query, key and value of the ways that are no other map, in float64."""
    with np.errstate(all="ignore"):
        s, slope, seen = _scores(call, way)
        top = np.max(s, axis=-1, keepdims=True, initial=-np.inf, where=seen)
        sink = np.full((1, call.axes.query_heads, 1, 1), -np.inf)
        if call.sink is not None and way.sink != "ignored":
            sink = call.sink[None, :, None, None]
        top = np.maximum(top, sink)
        top = np.where(np.isfinite(top), top, 0.0)
        n, sunk = np.where(seen, np.exp(s - top), 0.0), np.exp(sink - top)
        mass = n.sum(axis=-1, keepdims=True) + sunk
        safe = np.where(mass == 0.0, 1.0, mass)
        p = n / safe
        z = 1.0 if call.multiplier is None else call.multiplier
        value = call.value[:, list(call.head_map)]
        out = (p * z) @ value
        if way.sink == "value":
            out = out + sunk / safe * value[:, :, :1]
        found = {"output": out, "lse": (top + np.log(mass))[..., 0]}
        if call.grad_output is not None and way.sink != "value":
            through = z * (call.grad_output @ np.swapaxes(value, -1, -2))
            gs = p * (through - (p * through).sum(axis=-1, keepdims=True))
            found |= _gradients(call, gs * slope if way.slope else gs, p * z)
    return found


def _scores(call: AttentionCall, way: Way) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, the slope of the cap, and who is taken for visible."""
    raw, alpha, cap = dot_scores(call), call.scale_value, call.softcap
    bias = np.zeros((1, 1, 1, 1)) if call.bias is None else call.bias
    seen = np.asarray(call.visible)
    if cap is None or way.cap == "ignored":
        return alpha * raw + bias, np.ones_like(raw), seen
    before = {"unscaled": raw, "biased": alpha * raw + bias}.get(way.cap, alpha * raw)
    inner = np.tanh(np.where(seen | (way.cap != "masked"), before, -np.inf) / cap)
    s = cap * inner
    if way.cap == "unscaled":
        s = alpha * s
    if way.cap != "biased":
        s = s + bias
    return s, 1.0 - inner * inner, np.ones_like(seen) if way.cap == "masked" else seen


def _gradients(call: AttentionCall, gs: np.ndarray, consumed: np.ndarray) -> dict[str, np.ndarray]:
    assert call.grad_output is not None
    heads, gs = list(call.head_map), call.scale_value * gs
    key, value = np.zeros(call.key.shape), np.zeros(call.value.shape)
    for h, target in enumerate(heads):
        key[:, target] += np.swapaxes(gs[:, h], -1, -2) @ call.query[:, h]
        value[:, target] += np.swapaxes(consumed[:, h], -1, -2) @ call.grad_output[:, h]
    return {"grad_query": gs @ call.key[:, heads], "grad_key": key, "grad_value": value}


def named_mistakes(call: AttentionCall) -> dict[str, dict[str, np.ndarray]]:
    """Wrong tensors by mistake; a mistake that changes nothing on this call is left out."""
    ways: dict[str, tuple[Way, tuple[str, ...]]] = {}
    if call.softcap is not None:
        ways = {
            "softcap ignored": (Way("ignored"), ("output",)),
            "softcap applied before the scale": (Way("unscaled"), ("output",)),
            "softcap applied after the bias": (Way("biased"), ("output",)),
            "softcap applied after the mask, so that hidden keys score -c": (Way("masked"), ("output",)),
            "softcap missing in the backward pass": (Way(slope=False), ("output", "grad_query", "grad_key")),
        }
    if call.sink is not None:
        ways |= {
            "sink ignored": (Way(sink="ignored"), ("output",)),
            "sink counted as a value": (Way(sink="value"), ("output",)),
        }
    right = modelled(call, Way())
    found = {}
    for name, (way, tensors) in ways.items():
        wrong = modelled(call, way)
        if any(n in wrong and not np.array_equal(wrong[n], right[n]) for n in tensors):
            found[name] = {n: wrong[n] for n in tensors if n in wrong}
    if call.sink is not None and call.grad_output is not None:
        found["sink gradient missing"] = {"output": right["output"], "grad_sink": np.zeros(call.sink.shape)}
    return found
