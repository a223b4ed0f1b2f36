"""The zoo kernel as a certify subject, with all it can do declared, and any planted bugs switched on."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from certify.subject import Capabilities, Observation
from certify.subjects.snippet import call_literal
from certify.subjects.torch_tensors import lay_out_mask, run_torch
from pyspec import AttentionCall, Ledger
from pyspec.formats import FORMATS
from pyspec.heads import grouped
from pyspec.ledger import FINAL_STAGES, compute_for

from .kernel import attention
from .native import Words, native

TILE = (16, 16)
ZOO = Capabilities(
    dtypes=tuple(FORMATS),
    any_head_map=True,
    dropout_multiplier=True,
    returns_lse=True,
    isolates_poison=True,
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
        """kernel.numerics in certify's words: in low formats P·Z and dS are cast, everything else once at the end."""
        low = dtype in ("bfloat16", "float16")
        return Ledger(
            "zoo",
            dtype,
            compute_for(dtype),
            stores=(*FINAL_STAGES, "consumed", "scores_grad") if low else FINAL_STAGES,
            weights="recomputed",
            delta="output",
            key_tile=TILE[1],
        )

    def run(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Observation:
        words = said_natively(call)
        multiplier = None if call.multiplier is None else torch.from_numpy(np.array(call.multiplier))
        kept = None if multiplier is None else multiplier.clone()
        told: dict[str, Any] = {}
        before: dict[str, Tensor] = {}

        def invoke(query: Any, key: Any, value: Any, mask: Any) -> Any:
            told.update(spoken(call, words, mask))
            before.update({n: t.clone() for n, t in told.items() if isinstance(t, Tensor) and not t.requires_grad})
            return attention(
                query, key, value, multiplier=multiplier, return_lse=True, scale=call.scale.value, tile=TILE,
                bugs=self.bugs, **told, **heads(call),
            )  # fmt: skip

        seen = run_torch(call, raw, self.device, invoke, bias_gradient=True)
        changed = [n for n, t in before.items() if not torch.equal(told[n], t)]
        if multiplier is not None and not torch.equal(multiplier, kept):
            changed.append("multiplier")
        return replace(seen, changed_inputs=tuple(dict.fromkeys((*seen.changed_inputs, *changed))))

    def snippet(self, call: AttentionCall) -> str:
        return (
            call_literal(call)
            + "from tests.mutants.subject import ZooSubject\n\n"
            + f"print(dict(ZooSubject({self.bugs!r}).run(call).tensors))\n"
        )


def heads(call: AttentionCall) -> dict[str, Any]:
    """Equal groups by torch's flag, any other map explicitly."""
    a = call.axes
    if a.key_heads and a.query_heads % a.key_heads == 0 and call.head_map == grouped(a.query_heads, a.key_heads):
        return {"enable_gqa": True}
    return {"head_map": call.head_map}


def said_natively(call: AttentionCall) -> Words | None:
    """Causal, window or segment parameters for what a boolean mask says, in two of three calls that allow it.

    Which way is taken depends on the call alone, so that a replay takes the same.
    """
    if call.encoding != "bool" or call.bias is not None:
        return None
    visible = np.ascontiguousarray(call.visible)
    digest = hashlib.sha256(repr(call.score_shape).encode() + np.packbits(visible).tobytes()).digest()
    if digest[0] % 3 == 0:
        return None
    ways = native(visible)
    kinds = sorted({w.kind for w in ways})
    if not kinds:
        return None
    kind = kinds[digest[1] % len(kinds)]
    chosen = [w for w in ways if w.kind == kind]
    return chosen[digest[2] % len(chosen)]


def spoken(call: AttentionCall, words: Words | None, told: Tensor | None) -> dict[str, Any]:
    """The kernel's visibility arguments: as the campaign told it, or in native words."""
    if words is None:
        return {"attn_mask": told, "is_causal": call.encoding == "causal_flag"}
    options = dict(words.options)
    if "segments" in options:
        options["segments"] = tuple(torch.from_numpy(ids) for ids in options["segments"])
    mask = None if words.mask is None else torch.from_numpy(words.mask)
    return {"attn_mask": None if mask is None else lay_out_mask(mask, call.layout.mask, call.score_shape), **options}
