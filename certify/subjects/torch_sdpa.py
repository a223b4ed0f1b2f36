"""torch's scaled_dot_product_attention with one kernel forced, and attention in torch's eager operations."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from attnspec.certify.claims import Capabilities
from attnspec.certify.conventions.by_call import loaded_program
from attnspec.certify.conventions.execute import execute
from attnspec.certify.conventions.inputs import torch_inputs, torch_program
from attnspec.certify.conventions.program import Program
from attnspec.certify.conventions.sdpa import Sdpa
from attnspec.certify.errors import MissingDevice, UsageError
from attnspec.certify.observation import Observation
from attnspec.certify.subject import KnownDivergence
from attnspec.pyspec import AttentionCall, Ledger
from attnspec.pyspec.calls.call import LAYOUTS
from attnspec.pyspec.calls.formats import FORMATS, get_format
from attnspec.pyspec.oracle.ledger import every_operation_stored, flash, one_precision

KERNELS = {
    "math": "MATH",
    "flash": "FLASH_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
}
_CUDA_ONLY = ("efficient", "cudnn")
_SEEN = {
    "ScaledDotProductFlashAttention": "flash",
    "ScaledDotProductEfficientAttention": "efficient",
    "ScaledDotProductCudnnAttention": "cudnn",
}
_UNIT_STRIDE_LAST = tuple(n for n in LAYOUTS if n != "transposed")

_MATH = Capabilities(dtypes=tuple(FORMATS), devices=("cpu", "cuda"))
_FUSED = replace(
    _MATH, layouts=_UNIT_STRIDE_LAST, bias_gradient=False, value_width_differs=False, zero_sizes=False
)  # torch hands masks that need a gradient, other value widths and empty tensors to the math kernel
CAPABILITIES = {
    ("math", "cpu"): replace(_MATH, deterministic=True, refuses_meaningless=True),
    ("math", "cuda"): _MATH,
    ("flash", "cpu"): replace(_FUSED, deterministic=True),  # not every refusal: docs/FINDINGS.md#F11
    ("flash", "cuda"): replace(_FUSED, dtypes=("bfloat16", "float16"), encodings=("none", "causal_flag"), bias=False),
    ("efficient", "cuda"): replace(_FUSED, dtypes=("float32", "bfloat16", "float16"), grouped_heads=False),
    ("cudnn", "cuda"): replace(_FUSED, dtypes=("bfloat16", "float16")),
}


def require_device(device: str) -> None:
    """Raise MissingDevice unless torch can run there."""
    import torch

    kind = device.split(":")[0]
    if kind == "cuda" and not torch.cuda.is_available():
        raise MissingDevice(f"device {device!r} is not there: this torch ({torch.__version__}) sees no CUDA device")
    if kind not in ("cpu", "cuda"):
        raise UsageError(f"device {device!r}: expected cpu or cuda")


def torch_identity(device: str) -> dict[str, str]:
    """Versions and devices that a torch subject stands on."""
    import torch

    found = {"torch": torch.__version__, "threads": str(torch.get_num_threads()), "machine": platform.machine()}
    if device.startswith("cuda"):
        found["cuda device"] = torch.cuda.get_device_name(device)
        found["cuda"] = str(torch.version.cuda)
    else:
        found["cpu capability"] = torch.backends.cpu.get_cpu_capability()
    return found


def observed_kernel(output: Any) -> str:
    """Which fused kernel made this output, read off the graph; "math" when its graph is made of plain operations."""
    if output.grad_fn is None:
        return "unobserved"
    name = output.grad_fn.name()
    return next((kernel for mark, kernel in _SEEN.items() if mark in name), "math")


CAUSAL_SCALE = KnownDivergence(
    name="causal-flag-with-scale-not-positive",
    reason="NaN, because -inf is multiplied by the scale",
    finding="docs/FINDINGS.md#F1",
    meets=lambda call: call.encoding == "causal_flag" and call.scale_value <= 0.0,
)


EMPTY_OVERFLOW = KnownDivergence(
    name="empty-call-with-overflowing-output-gradient",
    reason="NaN query gradient, because the sum of the output gradient is multiplied by zero",
    finding="docs/FINDINGS.md#F10",
    meets=lambda call: call.axes.any_zero and _overflows(call),
)


def _overflows(call: AttentionCall) -> bool:
    """May the sum of the output gradient, taken in its own type, pass that type's largest number?"""
    if call.grad_output is None:
        return False
    with np.errstate(over="ignore"):
        total = np.abs(call.grad_output).sum()
    return bool(total >= get_format(call.dtype).largest)


@dataclass(frozen=True)
class TorchSdpa:
    """torch.nn.functional.scaled_dot_product_attention, held to one kernel by sdpa_kernel."""

    kernel: str
    device: str = "cpu"

    @property
    def name(self) -> str:
        return f"torch-sdpa:{self.kernel}"

    @property
    def capabilities(self) -> Capabilities:
        return CAPABILITIES[self.kernel, self.device.split(":")[0]]

    @property
    def known_divergences(self) -> tuple[KnownDivergence, ...]:
        """Where this kernel is known to be wrong."""
        if self.kernel == "math":
            return (EMPTY_OVERFLOW,)
        return (CAUSAL_SCALE,) if (self.kernel, self.device) == ("flash", "cpu") else ()

    def identity(self) -> dict[str, str]:
        return {**torch_identity(self.device), "kernel": self.kernel}

    def ledger(self, dtype: str) -> Ledger:
        if self.kernel == "math":
            return one_precision(dtype)
        if self.device == "cpu":
            # This kernel rounds the running key and value gradients after each tile of 32 query rows.
            return flash(dtype, gradient_tile=32, key_tile=512)
        return flash(dtype, gradient_tile=None, key_tile=32)

    @cached_property
    def _convention(self) -> Sdpa:
        return Sdpa(
            device=self.device,
            bias_gradient=self.capabilities.bias_gradient,
            contexts=(f"sdpa_kernel(SDPBackend.{KERNELS[self.kernel]})",),
            imports=("from torch.nn.attention import SDPBackend, sdpa_kernel",),
        )

    def program(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Program:
        return self._convention.program(call, raw)

    def run(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Observation:
        seen = execute(self.program(call, raw), {}, observed_kernel)
        if seen.error is None and seen.kernel not in ("unobserved", self.kernel):
            return replace(seen, error=f"kernel {self.kernel} was forced, but {seen.kernel} ran")
        return seen


@dataclass(frozen=True)
class TorchEager:
    """Attention as a framework user writes it: two matrix products and a softmax, each rounding to storage."""

    device: str = "cpu"
    name: str = "torch-eager"

    @property
    def capabilities(self) -> Capabilities:
        return replace(_MATH, dropout_multiplier=True, any_head_map=True, deterministic=self.device == "cpu")

    def identity(self) -> dict[str, str]:
        return torch_identity(self.device)

    def ledger(self, dtype: str) -> Ledger:
        return every_operation_stored(dtype)

    def program(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Program:
        return loaded_program(call, raw, self.name, self.device)

    def run(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Observation:
        inputs = torch_inputs(call, raw, self.device, bias_gradient=True)
        forward = (f"output = eager_attention(call, query, key, value, {inputs.mask})",)
        return execute(torch_program(call, inputs, forward), {"call": call, "eager_attention": eager_attention})


def eager_attention(call: AttentionCall, query: Any, key: Any, value: Any, mask: Any) -> Any:
    """softmax(scale · Q Kᵀ + mask) V in torch operations, with empty rows zero in both passes."""
    import torch

    heads = list(call.head_map)
    if heads != list(range(call.axes.key_heads)):
        key, value = key[:, heads], value[:, heads]
    scores = (query @ key.transpose(-1, -2)) * call.scale_value
    if call.encoding == "causal_flag":
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, -torch.inf)
    elif mask is not None:
        # Not scores + mask alone: a hidden score that overflowed would make inf - inf.
        scores = (scores + mask).masked_fill(mask == -torch.inf, -torch.inf)
    empty = torch.from_numpy(np.array(~call.visible.any(-1, keepdims=True))).to(scores.device)
    # Zeroing NaN afterwards would leave NaN gradients: an empty row must never reach the softmax.
    weights = torch.softmax(scores.masked_fill(empty, 0.0), dim=-1).masked_fill(empty, 0.0)
    if call.multiplier is not None:
        # The multiplier stays in double: 1 / (1 - p) is seldom a value of the storage format.
        weights = (weights * torch.from_numpy(np.array(call.multiplier)).to(weights.device)).to(weights.dtype)
    return weights @ value
