"""Subjects with more than dot products: every score family, returned weights, and dropout they draw themselves.

A subject says so with `Capabilities`, and reads it off the call: `score` is the family with its
parameters, a dropout that asks for returned weights wants a tensor "weights", and `own_dropout` is to be drawn by the
subject. On any other call it is an ordinary subject of the dot family.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attnspec.certify.claims import Capabilities
from attnspec.certify.conventions.by_call import loaded_program
from attnspec.certify.conventions.execute import execute
from attnspec.certify.conventions.inputs import torch_inputs, torch_program
from attnspec.certify.conventions.program import Program
from attnspec.certify.observation import Observation
from attnspec.certify.subjects.numpy_run import numpy_identity, observed, operands
from attnspec.certify.subjects.numpy_scores import attention
from attnspec.pyspec import AttentionCall, Ledger
from attnspec.pyspec.calls.call import OwnDropout
from attnspec.pyspec.calls.formats import FORMATS
from attnspec.pyspec.calls.score import FAMILIES, Additive, Bilinear, Cosine
from attnspec.pyspec.oracle.ledger import every_operation_stored, named_ledgers

_EVERY_FAMILY = Capabilities(
    dtypes=tuple(FORMATS),
    any_head_map=True,
    dropout_multiplier=True,
    families=FAMILIES,
    returns_weights=True,
    samples_dropout=True,
)


def sampled_call(call: AttentionCall, probability: float, seed: int) -> AttentionCall:
    """The call, to be run with dropout that the subject draws."""
    return call.but(own_dropout=OwnDropout(probability, seed), dropout=None)


@dataclass(frozen=True)
class NumpyScores:
    """The numpy reference of all score families: float64 throughout, one final cast."""

    name: str = "numpy-scores"
    device: str = "cpu"

    @property
    def capabilities(self) -> Capabilities:
        return replace(_EVERY_FAMILY, returns_lse=True)

    def identity(self) -> dict[str, str]:
        return numpy_identity()

    def ledger(self, dtype: str) -> Ledger:
        return named_ledgers(dtype)["float64-inside"]

    def run(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Observation:
        with np.errstate(all="ignore"):
            exact = attention(call, operands(call, raw), draw=_numpy_multiplier)
        return observed(call, exact)

    def program(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Program:
        return loaded_program(call, raw, self.name)


def _numpy_multiplier(call: AttentionCall) -> np.ndarray:
    own = call.own_dropout
    assert own is not None
    keep = np.random.default_rng(own.seed).random(call.score_shape) >= own.probability
    return keep / (1.0 - own.probability)


def _weights_returned(call: AttentionCall) -> str:
    """Which weights the call asks for: "before_dropout", "after_dropout" or "none"."""
    return "none" if call.dropout is None else call.dropout.returned_weights


@dataclass(frozen=True)
class TorchScores:
    """The score families in torch's eager operations, each rounding to storage; gradients through autograd."""

    device: str = "cpu"
    name: str = "torch-scores"

    @property
    def capabilities(self) -> Capabilities:
        return replace(_EVERY_FAMILY, devices=("cpu", "cuda"))

    def identity(self) -> dict[str, str]:
        from attnspec.certify.subjects.torch_sdpa import torch_identity

        return torch_identity(self.device)

    def ledger(self, dtype: str) -> Ledger:
        return every_operation_stored(dtype)

    def run(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Observation:
        inputs = torch_inputs(call, raw, self.device, bias_gradient=True, extra=call.score.parameters())
        names = {"call": call, "sampled": _torch_sampled, "attention": _torch_attention}
        if call.own_dropout is not None:
            names["own"] = call.own_dropout
            forward = (f"output = sampled(call, own, query, key, value, {inputs.mask})",)
            return execute(torch_program(call, inputs, forward), names)
        parameters = "{" + ", ".join(f"{n!r}: {n}" for n in call.score.parameters()) + "}"
        forward = (
            f"output, before_dropout, after_dropout = attention(call, {parameters}, query, key, value, {inputs.mask})",
        )
        returned = _weights_returned(call)
        also = {} if returned == "none" else {"weights": f"{returned}.detach()"}
        return execute(torch_program(call, inputs, forward, also=also), names)

    def program(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Program:
        return loaded_program(call, raw, self.name, self.device)


def _torch_scores(call: AttentionCall, parameters: Mapping[str, Any], query: Any, key: Any) -> Any:
    """Unscaled scores; key heads are already repeated."""
    import torch

    family = call.score
    if isinstance(family, Bilinear):
        return (query @ parameters["metric"]) @ key.transpose(-1, -2)
    if isinstance(family, Cosine):
        return _torch_direction(query, family) @ _torch_direction(key, family).transpose(-1, -2)
    if isinstance(family, Additive):
        query_term = query @ parameters["query_map"].transpose(-1, -2) + parameters["offset"][:, None, :]
        key_term = key @ parameters["key_map"].transpose(-1, -2)
        hidden = torch.tanh(query_term[..., :, None, :] + key_term[..., None, :, :])
        return (hidden @ parameters["vector"][:, None, :, None])[..., 0]
    return query @ key.transpose(-1, -2)


def _torch_direction(x: Any, family: Cosine) -> Any:
    import torch

    dead = (x == 0).all(-1, keepdim=True)
    # A vector of zeros must not reach the root, whose derivative there is not finite.
    length = torch.linalg.vector_norm(torch.where(dead, torch.ones_like(x), x), dim=-1, keepdim=True)
    if family.zero_norm == "clamp":
        return x / torch.where(dead, torch.zeros_like(length), length).clamp_min(family.epsilon)
    return torch.where(dead, torch.zeros_like(x), x / length)


def _torch_attention(
    call: AttentionCall, parameters: Mapping[str, Any], query: Any, key: Any, value: Any, mask: Any
) -> tuple[Any, Any, Any]:
    """Scores of the family, scale, bias, softmax, dropout, values: (output, weights before and after dropout)."""
    import torch

    heads = list(call.head_map)
    if heads != list(range(call.axes.key_heads)):
        key, value = key[:, heads], value[:, heads]
    scores = _torch_scores(call, parameters, query, key) * call.scale_value
    if call.encoding == "causal_flag":
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, -torch.inf)
    elif mask is not None:
        scores = (scores + mask).masked_fill(mask == -torch.inf, -torch.inf)
    empty = torch.from_numpy(np.array(~call.visible.any(-1, keepdims=True))).to(scores.device)
    before = torch.softmax(scores.masked_fill(empty, 0.0), dim=-1).masked_fill(empty, 0.0)
    after = before
    if call.multiplier is not None:
        after = (before * torch.from_numpy(np.array(call.multiplier)).to(before.device)).to(before.dtype)
    return after @ value, before, after


def _torch_sampled(call: AttentionCall, own: OwnDropout, query: Any, key: Any, value: Any, mask: Any) -> Any:
    """torch's functional attention with its own dropout, by the math kernel, from the call's seed."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    heads = list(call.head_map)
    devices = [query.device] if query.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), sdpa_kernel(SDPBackend.MATH):
        torch.manual_seed(own.seed)
        return torch.nn.functional.scaled_dot_product_attention(
            query,
            key[:, heads],
            value[:, heads],
            attn_mask=mask,
            dropout_p=own.probability,
            is_causal=call.encoding == "causal_flag",
            scale=call.scale,
        )
