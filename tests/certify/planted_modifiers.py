"""Planted bugs in softcap and sink: a plain row-by-row kernel with one thing wrong, and the property that names it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from attnspec.certify.claims import Capabilities
from attnspec.certify.conventions.by_call import call_program
from attnspec.certify.conventions.program import Program
from attnspec.certify.observation import Observation
from attnspec.certify.subjects.numpy_reference import NumpyReference
from attnspec.pyspec import AttentionCall, Ledger
from attnspec.pyspec.calls.formats import FORMATS, round_to


@dataclass(frozen=True)
class PlantedModifier:
    """A wrong kernel: its name, the property that must refute it, and words the complaint must hold."""

    name: str
    refuted_by: str
    says: str


PLANTED = (
    PlantedModifier("softcap_ignored", "softcap-agreement", "softcap ignored"),
    PlantedModifier("softcap_after_mask", "softcap-before-mask", "softcap applied after the mask"),
    PlantedModifier("softcap_after_bias", "softcap-agreement", "softcap applied after the bias"),
    PlantedModifier("softcap_before_scale", "softcap-agreement", "softcap applied before the scale"),
    PlantedModifier("softcap_missing_in_backward", "softcap-agreement", "softcap missing in the backward pass"),
    PlantedModifier("softcap_not_multiplied_back", "softcap-off-is-identity-limit", ""),
    PlantedModifier("sink_ignored", "sink-agreement", "sink ignored"),
    PlantedModifier("sink_counted_as_a_value", "sink-agreement", "sink counted as a value"),
    PlantedModifier("sink_gradient_missing", "sink-agreement", "grad_sink is missing"),
    PlantedModifier("sink_gradient_zero", "sink-agreement", "sink gradient missing"),
    PlantedModifier("sink_ignored", "sink-takes-mass", "sink ignored"),
    PlantedModifier("sink_ignored_on_empty_rows", "sink-empty-row", ""),
)


@dataclass(frozen=True)
class Modified:
    """The kernel with one bug, or with none (""), as a subject."""

    bug: str = ""
    device: str = "cpu"

    @property
    def name(self) -> str:
        return f"planted:{self.bug or 'none'}"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(dtypes=tuple(FORMATS), any_head_map=True, dropout_multiplier=True, returns_lse=True,
                            softcap=True, sink=True)  # fmt: skip

    def identity(self) -> dict[str, str]:
        return {"bug": self.bug}

    def ledger(self, dtype: str) -> Ledger:
        return NumpyReference().ledger(dtype)

    def run(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Observation:
        with np.errstate(all="ignore"):
            found = kernel(call, self.bug)
        tensors = {n: t if n == "lse" else round_to(call.dtype, t) for n, t in found.items()}
        kinds = dict.fromkeys(tensors, call.dtype)
        return Observation(tensors=tensors, dtypes=kinds, devices=dict.fromkeys(tensors, "cpu"), kernel="numpy")

    def program(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Program:
        return call_program(
            call, raw, f"Modified({self.bug!r})", imports=("from tests.certify.planted_modifiers import Modified",)
        )


def kernel(call: AttentionCall, bug: str) -> dict[str, np.ndarray]:
    """Every row by itself over all keys, hidden ones at -inf, the sink as one more column."""
    a, cap, alpha = call.axes, call.softcap, call.scale_value
    out = np.zeros((a.batch, a.query_heads, a.queries, a.value_width))
    lse, grad_bias = np.zeros(out.shape[:3]), np.zeros(call.score_shape)
    grads = {n: np.zeros(getattr(call, n).shape) for n in ("query", "key", "value")}
    grad_sink = np.zeros(a.query_heads)
    bias = np.broadcast_to(0.0 if call.bias is None else call.bias, call.score_shape)
    keep = np.ones(call.score_shape) if call.multiplier is None else call.multiplier
    for b, h, i in np.ndindex(call.score_shape[:3]):
        g, seen = call.head_map[h], call.visible[b, h, i]
        q, k, v = call.query[b, h, i], call.key[b, g], call.value[b, g]
        s, slope = capped(k @ q, alpha, cap, bias[b, h, i], seen, bug)
        sink = -np.inf if call.sink is None or bug == "sink_ignored" else call.sink[h]
        if bug == "sink_ignored_on_empty_rows" and not seen.any():
            sink = -np.inf
        row = np.append(s, sink)
        top = row.max() if np.isfinite(row.max()) else 0.0
        e = np.exp(row - top)
        total = e.sum()
        p = e / total if total > 0 else e
        lse[b, h, i] = top + np.log(total)
        z, w = keep[b, h, i], p[:-1]
        out[b, h, i] = (w * z) @ v
        if bug == "sink_counted_as_a_value" and a.keys:
            out[b, h, i] += p[-1] * v[0]
        if call.grad_output is None:
            continue
        grad_out = call.grad_output[b, h, i]
        through = z * (v @ grad_out)
        gs = w * (through - w @ through)
        ga = alpha * gs * (1.0 if bug == "softcap_missing_in_backward" else slope)
        grads["query"][b, h, i] = ga @ k
        grads["key"][b, g] += np.outer(ga, q)
        grads["value"][b, g] += np.outer(w * z, grad_out)
        grad_bias[b, h, i] = gs
        grad_sink[h] -= p[-1] * (w @ through)
    found = {"output": out, "lse": lse}
    if call.grad_output is not None:
        found |= {f"grad_{n}": t for n, t in grads.items()}
        if call.bias is not None:
            lost = tuple(n for n in range(4) if call.bias.shape[n] == 1 and call.score_shape[n] != 1)
            found["grad_bias"] = grad_bias.sum(axis=lost, keepdims=True)
        if call.sink is not None and bug != "sink_gradient_missing":
            found["grad_sink"] = grad_sink * (bug != "sink_gradient_zero")
    return found


def capped(
    dot: np.ndarray, alpha: float, cap: float | None, bias: np.ndarray, seen: np.ndarray, bug: str
) -> tuple[np.ndarray, np.ndarray]:
    """Scores with -inf at hidden keys, and the slope of the cap."""
    s, slope = alpha * dot, np.ones_like(dot)
    if cap is None or bug == "softcap_ignored":
        return np.where(seen, s + bias, -np.inf), slope
    if bug == "softcap_after_mask":
        s = np.where(seen, s, -np.inf)
    if bug == "softcap_after_bias":
        s = s + bias
    if bug == "softcap_before_scale":
        s = dot
    inner = np.tanh(s / cap)
    s, slope = cap * inner, 1.0 - inner * inner
    if bug == "softcap_not_multiplied_back":
        s = inner
    if bug == "softcap_before_scale":
        s = alpha * s
    if bug != "softcap_after_bias":
        s = s + bias
    return s if bug == "softcap_after_mask" else np.where(seen, s, -np.inf), slope


softcap_after_mask = Modified("softcap_after_mask")
softcap_missing_in_backward = Modified("softcap_missing_in_backward")
sink_counted_as_a_value = Modified("sink_counted_as_a_value")
right = Modified()
