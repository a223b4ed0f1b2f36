"""A right kernel is certified whatever it leaves out: what it does not claim is listed, and never stands in its way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from attnspec.certify.campaign.identify import Request, prepare
from attnspec.certify.campaign.parts import default_parts
from attnspec.certify.campaign.phases import run_campaign
from attnspec.certify.claims import Capabilities
from attnspec.certify.conventions.program import Program
from attnspec.certify.evidence.certificate import Certificate, SelfCheckRecord
from attnspec.certify.observation import Observation
from attnspec.certify.subject import Subject
from attnspec.certify.subjects.functional import FunctionSubject
from attnspec.certify.subjects.numpy_reference import NumpyReference
from attnspec.certify.subjects.torch_sdpa import CAPABILITIES
from attnspec.pyspec import AttentionCall, Ledger

AWAKE = SelfCheckRecord(passed=True, caught=[], missed=[], lines=[])
PLAIN = Capabilities()
RESTRICTIONS = {
    "everything": NumpyReference().capabilities,
    "a causal flag and no mask": replace(PLAIN, encodings=("none", "causal_flag"), bias=False, empty_rows=False),
    "the causal flag only": replace(PLAIN, encodings=("causal_flag",), bias=False, empty_rows=False),
    "no mask at all": replace(PLAIN, encodings=("none",), bias=False, empty_rows=False),
    "boolean masks only": replace(PLAIN, encodings=("bool",), bias=False),
    "additive masks only": replace(PLAIN, encodings=("additive",)),
    "no scale": replace(PLAIN, any_scale=False),
    "no bias": replace(PLAIN, bias=False),
    "no gradient of the bias": replace(PLAIN, bias_gradient=False),
    "one width": replace(PLAIN, value_width_differs=False),
    "no gradients": replace(PLAIN, gradients=False),
    "no grouped heads": replace(PLAIN, grouped_heads=False),
    "no empty rows": replace(PLAIN, empty_rows=False),
    "no zero sizes": replace(PLAIN, zero_sizes=False),
    "contiguous tensors only": replace(PLAIN, layouts=("contiguous",)),
    "query, key and value": Capabilities(
        encodings=("none",), bias=False, bias_gradient=False, grouped_heads=False, any_scale=False, empty_rows=False
    ),
    **{f"torch {kernel} on {device}": claims for (kernel, device), claims in CAPABILITIES.items()},
}


@dataclass(frozen=True)
class Restricted:
    """The numpy reference, which claims less, and raises where it is asked for more."""

    capabilities: Capabilities
    name: str = "restricted"
    device: str = "cpu"

    def identity(self) -> dict[str, str]:
        return {}

    def ledger(self, dtype: str) -> Ledger:
        return NumpyReference().ledger(dtype)

    def run(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Observation:
        a, c = call.axes, self.capabilities
        asked_for_more = (
            call.encoding not in c.encodings
            or (call.grad_output is not None and not c.gradients)
            or (call.scale is not None and not c.any_scale)
            or (a.key_width != a.value_width and not c.value_width_differs)
            or (a.query_heads != a.key_heads and not c.grouped_heads)
            or (a.any_zero and not c.zero_sizes)
            or (call.bias is not None and not c.bias)
            or (not call.visible.any(-1).all() and not c.empty_rows)
            or {call.layout.query, call.layout.key, call.layout.value} - set(c.layouts)
        )
        if asked_for_more:
            return Observation(error="asked for more than is claimed")
        sizes = {n: x.shape[1:3] for n in ("key", "value") for x in [np.asarray((raw or {}).get(n, getattr(call, n)))]}
        if c.refuses_meaningless and (raw or {}) and not _fits(call, raw or {}):
            return Observation(error=f"sizes do not fit: {sizes}")
        seen = NumpyReference().run(call, raw)
        if not c.gradients or c.bias_gradient:
            return seen
        return replace(seen, tensors={n: t for n, t in seen.tensors.items() if n != "grad_bias"})

    def program(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Program:
        return NumpyReference().program(call, raw)


def _fits(call: AttentionCall, raw: Mapping[str, np.ndarray]) -> bool:
    return all(x.dtype == np.float64 and x.shape == getattr(call, n).shape for n, x in raw.items())


def certified(subject: Subject, out: Path) -> Certificate:
    parts = replace(
        default_parts(), load=lambda spec, device: subject, foreign=lambda spec: False, fresh=lambda *_: subject
    )
    ready = prepare(Request("restricted", out, dtypes=("float32",), profile="smoke", examples=1), parts)
    return run_campaign(ready, lambda event: None, parts, checked=AWAKE)


def assert_certified(certificate: Certificate) -> None:
    assert (certificate.verdict, certificate.exit_code) == ("CERTIFIED", 0), certificate.reasons
    assert {row.state for row in certificate.properties} <= {"held", "not_covered"}
    held = {row.id for row in certificate.properties if row.state == "held"}
    assert {"forward-agreement", "scale-gate", "normaliser-is-softmax", "inputs-unchanged"} <= held
    left_out = {row.id for row in certificate.properties} - held
    assert all(any(name in line for line in certificate.not_claimed) for name in left_out)


@pytest.mark.parametrize("claims", RESTRICTIONS.values(), ids=RESTRICTIONS)
def test_a_right_kernel_is_certified(claims: Capabilities, tmp_path: Path) -> None:
    assert_certified(certified(Restricted(replace(claims, dtypes=("float32",), devices=("cpu",))), tmp_path))


sdpa = torch.nn.functional.scaled_dot_product_attention


def bare(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return sdpa(query, key, value)


def causal(query: Tensor, key: Tensor, value: Tensor, is_causal: bool = False) -> Tensor:
    return sdpa(query, key, value, is_causal=is_causal)


def masked(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None) -> Tensor:
    return sdpa(query, key, value, attn_mask=attn_mask)


@pytest.mark.parametrize("function", [bare, causal, masked], ids=lambda f: f.__name__)
def test_a_right_function_with_few_arguments_is_certified(function: Callable[..., Tensor], tmp_path: Path) -> None:
    assert_certified(certified(FunctionSubject(function, f"{__name__}:{function.__name__}"), tmp_path))
