"""A foreign function with the signature of torch's functional attention, as a subject."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from attnspec.certify.conventions.snippet import torch_program
from attnspec.certify.conventions.torch_tensors import run_torch, to_tensor, torch_dtype
from attnspec.certify.subjects.subject import Capabilities, Observation
from attnspec.certify.subjects.torch_sdpa import torch_identity
from attnspec.pyspec import AttentionCall, Ledger
from attnspec.pyspec.calls.formats import FORMATS
from attnspec.pyspec.oracle.ledger import flash

OPTIONAL = ("attn_mask", "is_causal", "scale", "enable_gqa")
# Keywords beyond torch's: a function that names them claims them.
MODIFIERS = ("softcap", "sink")


@dataclass(frozen=True)
class FunctionSubject:
    """`fn(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False)`.

    Gradients go through autograd. Arguments that the function does not take narrow what it claims. A function
    that takes `softcap` (a float) or `sink` (a tensor [Hq]) by name claims it and is given it. A function
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
        return Capabilities(
            dtypes=tuple(FORMATS),
            devices=("cpu", "cuda"),
            encodings=tuple(encodings),
            bias="attn_mask" in takes,
            bias_gradient="attn_mask" in takes,
            grouped_heads="enable_gqa" in takes,
            any_scale="scale" in takes,
            softcap="softcap" in takes,
            sink="sink" in takes,
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

    def run(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Observation:
        takes = _parameters(self.fn)
        sink = None if call.sink is None else to_tensor(call.sink, torch_dtype(call.dtype), self.device)

        def invoke(query: Any, key: Any, value: Any, mask: Any) -> Any:
            options = {
                "attn_mask": mask,
                "is_causal": call.encoding == "causal_flag",
                "scale": call.scale,
                "enable_gqa": call.axes.query_heads != call.axes.key_heads,
                "softcap": call.softcap,
                "sink": sink,
            }
            # What is not asked for is left out, so that the function's own defaults are tested.
            given = {n: v for n, v in options.items() if n in takes and v is not None and v is not False}
            return self.fn(query, key, value, **given)

        extra = None if sink is None else {"sink": sink}
        return run_torch(call, raw, self.device, invoke, bias_gradient=self.capabilities.bias_gradient, extra=extra)

    def snippet(self, call: AttentionCall) -> str:
        path, _, attribute = self.name.rpartition(":")
        return torch_program(
            call,
            import_statement(path, attribute),
            lambda args: f"output = {attribute}({args})",
            self.device,
        )


def import_statement(path: str, attribute: str) -> str:
    """Lines that bring `attribute` of a module or of a file into scope."""
    if not path.endswith(".py"):
        return f"from {path} import {attribute}"
    return f"import runpy\n\n{attribute} = runpy.run_path({path!r})[{attribute!r}]"


def _parameters(fn: Callable[..., Any]) -> frozenset[str]:
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return frozenset(OPTIONAL)  # a builtin that hides its signature: take it at torch's
    named = frozenset(p.name for p in parameters)
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return frozenset(OPTIONAL) | (named & frozenset(MODIFIERS))
    return named & frozenset((*OPTIONAL, *MODIFIERS))
