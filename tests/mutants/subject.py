"""The zoo kernel as a certify subject, with all it can do declared, and any planted bugs switched on."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnspec.certify.claims import Capabilities
from attnspec.certify.conventions.by_call import call_program
from attnspec.certify.conventions.execute import execute
from attnspec.certify.conventions.inputs import torch_inputs, torch_program
from attnspec.certify.conventions.layouts import lay_out_mask
from attnspec.certify.conventions.program import Program
from attnspec.certify.observation import Observation
from attnspec.pyspec import AttentionCall, Ledger
from attnspec.pyspec.calls.formats import FORMATS
from attnspec.pyspec.heads import is_grouped
from attnspec.pyspec.oracle.ledger import FINAL_STAGES, compute_for

from .calls import memory, same_tensor_bits
from .kernel import attention
from .native import Words, native

TILE = (16, 16)
ZOO = Capabilities(
    dtypes=tuple(FORMATS),
    any_head_map=True,
    dropout_multiplier=True,
    returns_lse=True,
    isolates_poison=True,
    deterministic=True,
    refuses_meaningless=True,
    softcap=True,
)


@dataclass(frozen=True)
class ZooSubject:
    """tests/mutants/kernel on the CPU; `bugs` are names from the catalogue, none for the correct kernel."""

    bugs: frozenset[str] = frozenset()
    device: str = "cpu"

    @property
    def name(self) -> str:
        return "zoo" + "".join(f":{b}" for b in sorted(self.bugs))

    @property
    def capabilities(self) -> Capabilities:
        return ZOO

    def identity(self) -> dict[str, str]:
        return {"torch": torch.__version__, "bugs": ", ".join(sorted(self.bugs)) or "none"}

    def ledger(self, dtype: str) -> Ledger:
        """kernel.numerics in certify's words: in low formats P·Z and dS are cast, everything else once at the end.

        Under a softcap dS is cast after the cap's slope, not before; a ledger has no way to say "not before".
        """
        low = dtype in ("bfloat16", "float16")
        return Ledger(
            "zoo",
            dtype,
            compute_for(dtype),
            stores=(*FINAL_STAGES, "consumed", "scores_grad", "capped_grad") if low else FINAL_STAGES,
            weights="recomputed",
            delta="output",
            key_tile=TILE[1],
        )

    def run(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Observation:
        seen = self._run(call, raw, bias_alone=False)
        if "grad_bias" not in seen.tensors or choice(call, "bias alone") % 2:
            return seen
        alone = self._run(call, raw, bias_alone=True)
        if alone.error is not None:
            return alone
        return replace(seen, tensors={**seen.tensors, "grad_bias": alone.tensors["grad_bias"]})

    def _run(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None, bias_alone: bool) -> Observation:
        """One run; `bias_alone` asks for no gradient but the bias's."""
        # Told natively, a mask has no length that keys could disagree with.
        misfit = any(x.shape != getattr(call, n).shape for n, x in (raw or {}).items())
        words, watch = None if misfit else said_natively(call), Watch()
        multiplier = None if call.multiplier is None else torch.from_numpy(np.array(call.multiplier))

        def invoke(query: Any, key: Any, value: Any, mask: Any) -> Any:
            for name, tensor in (("query", query), ("key", key), ("value", value), ("multiplier", multiplier)):
                watch(name, tensor)
            if bias_alone:
                query, key, value = query.detach(), key.detach(), value.detach()
            told = spoken(call, words, mask)
            watch("attn_mask", told["attn_mask"])
            out, lse = attention(
                query, shared(key), value, multiplier=multiplier, return_lse=True, scale=call.scale,
                softcap=call.softcap, tile=TILE, bugs=self.bugs, **told, **heads(call),
            )  # fmt: skip
            if out.requires_grad:
                out.register_hook(lambda grad: watch("grad_output", grad))
            return out, lse

        inputs = torch_inputs(call, raw, self.device, bias_gradient=True)
        forward = (f"output, lse = invoke(query, key, value, {inputs.mask})",)
        program = torch_program(call, inputs, forward, also={"lse": "lse.detach()"})
        seen = execute(program, {"invoke": invoke})
        return replace(seen, changed_inputs=tuple(dict.fromkeys((*seen.changed_inputs, *watch.changed()))))

    def program(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Program:
        bugs = f"frozenset({sorted(self.bugs)!r})"
        return call_program(call, raw, f"ZooSubject({bugs})", imports=("from tests.mutants.subject import ZooSubject",))


class Watch:
    """Copies of the memory that tensors lie in, what surrounds a view included."""

    def __init__(self) -> None:
        self.kept: list[tuple[str, Tensor, Tensor]] = []

    def __call__(self, name: str, tensor: Tensor | None) -> None:
        if tensor is not None:
            self.kept.append((name, memory(tensor), memory(tensor).clone()))

    def changed(self) -> list[str]:
        """Names of the tensors whose memory no longer holds what it held."""
        return [name for name, now, then in self.kept if not same_tensor_bits(now, then)]


class Shared(torch.autograd.Function):
    """The same numbers as one head expanded over all, stride 0; the gradient passes as it is."""

    @staticmethod
    def forward(ctx: Any, key: Tensor) -> Tensor:
        """key [B,Hkv,K,D], equal in all heads."""
        return key[:, :1].clone().expand(key.shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        """Each head's gradient is its own."""
        return grad


def shared(key: Tensor) -> Tensor:
    """The key as it is, or expanded from one head where all its heads are equal (grouped heads written out)."""
    if key.shape[1] > 1 and key.numel() and bool((key == key[:, :1]).all()):
        return Shared.apply(key)
    return key


def choice(call: AttentionCall, purpose: str) -> int:
    """A number that depends on the call's structure alone, so that a replay chooses the same."""
    visible = np.packbits(np.ascontiguousarray(call.visible)).tobytes()
    return hashlib.sha256(purpose.encode() + repr(call.score_shape).encode() + visible).digest()[0]


def heads(call: AttentionCall) -> dict[str, Any]:
    """Equal groups by torch's flag, any other map explicitly."""
    a = call.axes
    if a.key_heads and is_grouped(call.head_map, a.key_heads):
        return {"enable_gqa": True}
    return {"head_map": call.head_map}


def said_natively(call: AttentionCall) -> Words | None:
    """Causal, window or segment parameters for what a boolean mask says, in two of three calls that allow it.

    A mask stored with one row or one column was made small on purpose, and is told as it is. Which way is taken depends
    on the call alone, so that a replay takes the same.
    """
    small = any(stored < n for stored, n in zip(call.visibility.mask.shape[2:], call.score_shape[2:], strict=True))
    if small or call.encoding != "bool" or call.bias is not None:
        return None
    if choice(call, "told as it is") % 3 == 0:
        return None
    ways = native(np.ascontiguousarray(call.visible))
    whole = [w for w in ways if w.mask is None]
    if whole and choice(call, "without a mask") % 4:
        ways = whole
    kinds = sorted({w.kind for w in ways})
    if not kinds:
        return None
    kind = kinds[choice(call, "kind") % len(kinds)]
    chosen = [w for w in ways if w.kind == kind]
    return chosen[choice(call, "way") % len(chosen)]


def spoken(call: AttentionCall, words: Words | None, told: Tensor | None) -> dict[str, Any]:
    """The kernel's visibility arguments: as the campaign told it, or in native words."""
    if words is None:
        return {"attn_mask": told, "is_causal": call.encoding == "causal_flag"}
    options = dict(words.options)
    if "segments" in options:
        options["segments"] = tuple(torch.from_numpy(ids) for ids in options["segments"])
    mask = None if words.mask is None else torch.from_numpy(words.mask)
    return {"attn_mask": None if mask is None else lay_out_mask(mask, call.layout.mask, call.score_shape), **options}
