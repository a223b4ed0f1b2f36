"""A foreign function whose `dropout_p` is to be certified as well: it draws its own masks from torch's generator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attnspec.certify.conventions.torch_tensors import run_torch
from attnspec.certify.subjects.functional import FunctionSubject
from attnspec.certify.subjects.subject import Capabilities, Observation
from attnspec.pyspec import AttentionCall


@dataclass(frozen=True)
class SamplingFunction(FunctionSubject):
    """`fn(query, key, value, ..., dropout_p=p)`, held to `dropout-own-mask` besides what a function is held to.

    The function must draw from torch's default generator of its device, and take `dropout_p`.
    """

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, samples_dropout=True)

    def run(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Observation:
        if (own := call.own_dropout) is None:
            return super().run(call, raw)

        def invoke(query: Any, key: Any, value: Any, mask: Any) -> Any:
            import torch

            devices = [query.device] if query.device.type == "cuda" else []
            options = {} if mask is None else {"attn_mask": mask}
            with torch.random.fork_rng(devices=devices):
                torch.manual_seed(own.seed)
                return self.fn(query, key, value, dropout_p=own.probability, **options)

        return run_torch(call, raw, self.device, invoke, bias_gradient=self.capabilities.bias_gradient)
