"""ONNX backend vectors: one tiny call for each feature of the Attention operator."""

from __future__ import annotations

from collections.abc import Callable

import torch

from bench.peers.data import Draw, uniform
from bench.peers.eager import eager
from bench.peers.model import DTYPES, Case, Rule, compared, not_close, words
from tests.mutants.calls import Tensors, ZooCall


def close(call: ZooCall) -> Callable[[Tensors], str | None]:
    """Output within 1e-7 + 1e-3·|ref| of a plain reference in the same type."""
    want = eager(call, call.query.dtype)["out"]
    return lambda shown: "out" if not_close(shown["out"], want, rtol=1e-3, atol=1e-7) else None


def cases(dtype: str, seed: int) -> tuple[Case, ...]:
    """Plain, scale, causal, masks of each rank, grouped heads, soft cap, widths, empty rows, large hidden values."""
    made: list[Case] = []
    shape = (2, (3, 3), 4, 6, 8)

    def bits(*axes: int) -> torch.Tensor:
        mask = torch.rand(axes, generator=torch.Generator().manual_seed(seed)) < 0.6
        mask[..., 0] = True
        return mask

    def case(name: str, axes: tuple = shape, **options: object) -> None:
        call = Draw(seed * 100 + len(made), DTYPES[dtype], uniform).call(axes, wants=(), **options)
        made.append(compared(name, call, close(call)))

    case("plain")
    case("scale", scale=1e-2)
    case("causal", is_causal=True)
    case("float mask, 2 axes", mask=uniform((4, 6), torch.Generator().manual_seed(seed)))
    case("bool mask, 2 axes", mask=bits(4, 6))
    case("bool mask, 3 axes", mask=bits(1, 4, 6))
    case("bool mask, 4 axes", mask=bits(2, 3, 4, 6))
    case("bool mask and causal", mask=bits(4, 6), is_causal=True)
    case("grouped heads", (2, (9, 3), 4, 6, 8))
    case("grouped heads, causal", (2, (9, 3), 4, 6, 8), is_causal=True)
    case("soft cap", softcap=2.0)
    case("value width", shape, value_width=10)
    case("past keys", (2, (3, 3), 4, 18, 8), is_causal=True, causal="lower_right")
    empty = bits(4, 6)
    empty[1] = False
    case("a row masked out", mask=empty)
    hidden = Draw(seed * 100 + 70, DTYPES[dtype], uniform).call(shape, wants=(), mask=torch.arange(6) < 4)
    hidden.value[:, :, 4:] = 1000.0
    made.append(compared("large values behind the mask", hidden, close(hidden)))
    return tuple(made)


ONNX = Rule(
    id="onnx",
    title="ONNX vectors",
    source="onnx/onnx onnx/backend/test/case/node/attention.py at f754691 (2026-08-22)",
    statement="Output within 1e-7 + 1e-3·|ref| of a plain reference in the same type, on one vector for each "
    "feature, data uniform on [0,1), every axis at most 18. Forward only.",
    scaled="15 of 87 vectors: one a feature. Left out: cache outputs, returned score matrices.",
    dtypes=("float32", "float16"),
    features=words(
        "grouped_heads softcap causal lower_right mask additive_mask bias inputs_after scale value_width "
        "hiding empty_rows tails"
    ),
    cases=cases,
)
