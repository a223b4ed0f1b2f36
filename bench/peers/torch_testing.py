"""torch.testing.assert_close with its defaults: what a kernel author writes first."""

from __future__ import annotations

from collections.abc import Callable

import torch

from bench.peers.data import Draw, normal
from bench.peers.model import DTYPES, Case, Rule, compared, words
from bench.peers.pytorch_sdpa import math_backend
from tests.mutants.calls import Tensors, ZooCall


def close(call: ZooCall) -> Callable[[Tensors], str | None]:
    """Output and gradients pass torch.testing.assert_close against the math backend in the same type."""
    want = math_backend(call, call.query.dtype)

    def judge(shown: Tensors) -> str | None:
        for name, exact in want.items():
            try:
                torch.testing.assert_close(shown[name], exact)
            except AssertionError:
                return name
        return None

    return judge


def cases(dtype: str, seed: int) -> tuple[Case, ...]:
    """Plain, causal, mask, float mask, grouped heads, own scale; standard normal data."""
    made: list[Case] = []

    def case(name: str, shape: tuple, **options: object) -> None:
        call = Draw(seed * 100 + len(made), DTYPES[dtype], normal()).call(shape, **options)
        made.append(compared(name, call, close(call)))

    source = torch.Generator().manual_seed(seed)
    mask = torch.rand((2, 1, 33, 65), generator=source) < 0.7
    case("plain (64,64)", (2, (2, 2), 64, 64, 32))
    case("causal (64,64)", (2, (2, 2), 64, 64, 32), is_causal=True)
    case("plain (33,65)", (2, (2, 2), 33, 65, 17))
    case("bool mask (33,65)", (2, (2, 2), 33, 65, 32), mask=mask)
    case("float mask (33,65)", (2, (2, 2), 33, 65, 32), mask=torch.randn((33, 65), generator=source))
    case("grouped heads", (2, (4, 2), 48, 48, 32), is_causal=True)
    case("own scale", (2, (2, 2), 40, 72, 16), scale=0.3)
    return tuple(made)


ASSERT_CLOSE = Rule(
    id="assert-close",
    title="torch.testing defaults",
    source="torch 2.13.0 torch/testing/_comparison.py",
    statement="Each entry of output and gradients within the defaults (float32 1.3e-6 relative and 1e-5 absolute, "
    "bfloat16 1.6e-2 and 1e-5, float16 1e-3 and 1e-5) of torch's math backend in the same type. No "
    "project fixes data for it: standard normal on seven ordinary shapes, chosen here.",
    scaled="Nothing.",
    dtypes=("float32", "bfloat16", "float16"),
    features=words(
        "gradients bias bias_gradient grouped_heads causal mask additive_mask layout inputs_after multiplier "
        "bias_gradient_alone memory_around_inputs scale value_width hiding empty_rows zero_sizes tails"
    ),
    cases=cases,
)
