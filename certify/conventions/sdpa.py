"""torch's functional attention, and every function with its signature: fn(query, key, value, attn_mask=None, ...)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from attnspec.certify.conventions.inputs import TorchInputs, torch_inputs, torch_program
from attnspec.certify.conventions.program import Program
from attnspec.pyspec import AttentionCall

TORCH_KEYWORDS = frozenset(("attn_mask", "is_causal", "scale", "enable_gqa"))


@dataclass(frozen=True)
class OwnDropout:
    """Dropout that the function draws itself, from torch's generator seeded with `seed`."""

    probability: float
    seed: int


@dataclass(frozen=True)
class Sdpa:
    """How a function with the signature of torch's scaled_dot_product_attention is called.

    function: the expression that names it. keywords: those that it takes; beyond torch's, "softcap" (a number) and
    "sink" (a tensor [Hq]). bias_gradient: a bias's gradient is asked for. returns_pair: it may return (output, lse).
    contexts: expressions of context managers that it runs in. imports, subject: statements that bring these names
    into scope.
    """

    function: str = "torch.nn.functional.scaled_dot_product_attention"
    keywords: frozenset[str] = TORCH_KEYWORDS
    device: str = "cpu"
    bias_gradient: bool = True
    returns_pair: bool = False
    contexts: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    subject: tuple[str, ...] = ()

    def program(
        self,
        call: AttentionCall,
        raw: Mapping[str, np.ndarray] | None = None,
        dropout: OwnDropout | None = None,
    ) -> Program:
        """The call as a program; `raw` replaces query, key or value. What is not asked for is left out of the call."""
        extra = {"sink": call.sink} if call.sink is not None and "sink" in self.keywords else None
        inputs = torch_inputs(call, raw, self.device, bias_gradient=self.bias_gradient, extra=extra)
        called = f"{self.function}({', '.join(('query', 'key', 'value', *self._options(call, inputs, dropout)))})"
        forward, also = (f"output = {called}",), {}
        if self.returns_pair:
            forward = (
                f"result = {called}",
                "output, lse = result if isinstance(result, tuple) else (result, None)",
            )
            also = {"lse": "lse if lse is None else lse.detach()"}
        contexts = self.contexts
        if dropout is not None:
            devices = "[query.device]" if self.device.startswith("cuda") else "[]"
            contexts = (*contexts, f"torch.random.fork_rng(devices={devices})")
            forward = (f"torch.manual_seed({dropout.seed})", *forward)
        return torch_program(
            call, inputs, forward, contexts=contexts, imports=self.imports, subject=self.subject, also=also
        )

    def _options(self, call: AttentionCall, inputs: TorchInputs, dropout: OwnDropout | None) -> list[str]:
        """Keyword arguments as they are written. Functions' own defaults are tested by leaving them out."""
        options = {
            "attn_mask": None if inputs.mask == "None" else inputs.mask,
            "is_causal": "True" if inputs.is_causal else None,
            "scale": None if call.scale.value is None else repr(call.scale.value),
            "enable_gqa": "True" if call.axes.query_heads != call.axes.key_heads else None,
            "softcap": None if call.softcap is None else repr(call.softcap),
            "sink": None if call.sink is None else "sink",
        }
        given = [f"{n}={text}" for n, text in options.items() if text is not None and n in self.keywords]
        return given if dropout is None else [*given, f"dropout_p={dropout.probability!r}"]
