"""torch's functional attention, and every function with its signature: fn(query, key, value, attn_mask=None, ...)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnspec.certify.conventions.inputs import TorchInputs, torch_inputs, torch_program
from attnspec.certify.conventions.program import Program
from attnspec.pyspec import AttentionCall
from attnspec.pyspec.calls.features import BY_NAME, MODIFIERS

TORCH_KEYWORDS = frozenset(("attn_mask", "is_causal", "scale", "enable_gqa"))


@dataclass(frozen=True)
class Sdpa:
    """How a function with the signature of torch's scaled_dot_product_attention is called.

    function: the expression that names it. keywords: those that it takes; beyond torch's, "softcap" (a number),
    "sink" and "alibi_slopes" (tensors [Hq]). bias_gradient: a bias's gradient is asked for. returns_pair: it may return
    (output, lse). contexts: expressions of context managers that it runs in. imports, subject: statements that bring
    these names into scope.
    """

    function: str = "torch.nn.functional.scaled_dot_product_attention"
    keywords: frozenset[str] = TORCH_KEYWORDS
    device: str = "cpu"
    bias_gradient: bool = True
    returns_pair: bool = False
    contexts: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    subject: tuple[str, ...] = ()

    def program(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Program:
        """The call as a program; `raw` replaces query, key or value.

        Dropout of the function's own is drawn from torch's generator with the call's seed.
        """
        extra = {name: x for _, name, x in _modifiers(call) if isinstance(x, np.ndarray)}
        inputs = torch_inputs(call, raw, self.device, bias_gradient=self.bias_gradient, extra=extra)
        options, constants = self._options(call, inputs)
        contexts, forward = self.contexts, []
        dropout = call.own_dropout
        if dropout is not None:
            devices = "[query.device]" if self.device.startswith("cuda") else "[]"
            forward.append("torch.manual_seed(seed)")
            contexts = (*contexts, f"torch.random.fork_rng(devices={devices})")
            options.append("dropout_p=dropout_p")
            constants |= {"dropout_p": dropout.probability, "seed": dropout.seed}
        called = f"{self.function}({', '.join(('query', 'key', 'value', *options))})"
        also = {}
        if self.returns_pair:
            forward += [f"result = {called}", "output, lse = result if isinstance(result, tuple) else (result, None)"]
            also["lse"] = "lse if lse is None else lse.detach()"
        else:
            forward.append(f"output = {called}")
        return torch_program(
            call,
            inputs,
            tuple(forward),
            contexts=contexts,
            imports=self.imports,
            subject=self.subject,
            also=also,
            constants=constants,
        )

    def _options(self, call: AttentionCall, inputs: TorchInputs) -> tuple[list[str], dict[str, float]]:
        """Keyword arguments as they are written, and the numbers among them.

        What is not asked for is left out, so that the function's own defaults are tested.
        """
        # torch's flag for fewer key heads than query heads; how these are shared then follows from their numbers.
        grouped = call.axes.query_heads != call.axes.key_heads
        flags = {"is_causal": inputs.is_causal, "enable_gqa": grouped}
        variables = {"attn_mask": "attn_mask"} if inputs.mask != "None" else {}
        numbers = {} if call.scale is None else {"scale": call.scale}
        for keyword, name, x in _modifiers(call):
            if isinstance(x, np.ndarray):
                variables[keyword] = name
            else:
                numbers[keyword] = x
        constants = {n: x for n, x in numbers.items() if n in self.keywords}
        given = [f"{n}={x}" for n, x in variables.items() if n in self.keywords]
        given += [f"{n}=True" for n, there in flags.items() if there and n in self.keywords]
        return [*given, *(f"{n}={n}" for n in constants)], constants


def _modifiers(call: AttentionCall) -> list[tuple[str, str, Any]]:
    """Keyword, name and value (a number or an array) of every modifier of the scores that the call has."""
    return [(BY_NAME[n].keyword, n, x) for n in MODIFIERS if (x := getattr(call, n)) is not None]
