"""A foreign function with the signature of torch's functional attention, as a subject."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from attnspec.certify.claims import Capabilities
from attnspec.certify.conventions.execute import execute
from attnspec.certify.conventions.program import Program
from attnspec.certify.conventions.scope import called, import_statements
from attnspec.certify.conventions.sdpa import TORCH_KEYWORDS, Sdpa
from attnspec.certify.observation import Observation
from attnspec.certify.subjects.torch_sdpa import torch_identity
from attnspec.pyspec import AttentionCall, Ledger
from attnspec.pyspec.calls.features import BY_NAME, MODIFIERS
from attnspec.pyspec.calls.formats import FORMATS
from attnspec.pyspec.oracle.ledger import flash

# Keywords beyond torch's: a function that names them claims them.
MODIFIER_KEYWORDS = frozenset(BY_NAME[name].keyword for name in MODIFIERS)


@dataclass(frozen=True)
class FunctionSubject:
    """`fn(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False)`.

    Gradients go through autograd. Arguments that the function does not take narrow what it claims. A function
    that takes `softcap` (a float), `sink` or `alibi_slopes` (tensors [Hq]) by name claims it and is given it. It
    may carry attributes: `attnspec_capabilities` (a Capabilities) and `attnspec_ledger` (dtype -> Ledger).
    Without the latter it is held to the flash ledger: scores in the accumulation format, weights cast to
    storage before the products, backward recomputed or saved.
    """

    fn: Callable[..., Any]
    name: str
    device: str = "cpu"

    @property
    def capabilities(self) -> Capabilities:
        declared = getattr(self.fn, "attnspec_capabilities", None)
        if declared is not None:
            return declared
        takes = _parameters(self.fn)
        encodings = ["none"]
        encodings += ["bool", "additive"] if "attn_mask" in takes else []
        encodings += ["causal_flag"] if "is_causal" in takes else []
        modifiers: dict[str, Any] = {BY_NAME[n].claim: BY_NAME[n].keyword in takes for n in MODIFIERS}
        return Capabilities(
            dtypes=tuple(FORMATS),
            devices=("cpu", "cuda"),
            encodings=tuple(encodings),
            bias="attn_mask" in takes,
            bias_gradient="attn_mask" in takes,
            grouped_heads="enable_gqa" in takes,
            any_scale="scale" in takes,
            **modifiers,
        )

    def identity(self) -> dict[str, str]:
        found = {"function": getattr(self.fn, "__qualname__", repr(self.fn)), **torch_identity(self.device)}
        source = inspect.getsourcefile(self.fn) if inspect.isfunction(self.fn) else None
        if source is not None and Path(source).is_file():
            found["source"] = Path(source).name
            found["source sha256"] = hashlib.sha256(Path(source).read_bytes()).hexdigest()
        return found

    def ledger(self, dtype: str) -> Ledger:
        declared = getattr(self.fn, "attnspec_ledger", None)
        if declared is not None:
            return declared(dtype)
        return flash(dtype, gradient_tile=32, key_tile=16)

    def program(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Program:
        return self._convention.program(call, raw)

    def run(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Observation:
        return execute(self.program(call, raw), {called(self.name): self.fn})

    @cached_property
    def _convention(self) -> Sdpa:
        return Sdpa(
            called(self.name),
            _parameters(self.fn),
            self.device,
            bias_gradient=self.capabilities.bias_gradient,
            returns_pair=True,
            subject=import_statements(self.name),
        )


def _parameters(fn: Callable[..., Any]) -> frozenset[str]:
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return TORCH_KEYWORDS  # a builtin that hides its signature: take it at torch's
    named = frozenset(p.name for p in parameters)
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return TORCH_KEYWORDS | (named & MODIFIER_KEYWORDS)
    return named & (TORCH_KEYWORDS | MODIFIER_KEYWORDS)
