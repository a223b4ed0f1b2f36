"""PyTorch: within a fudge factor of the math backend's own error, for each tensor its factor."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from bench.peers.data import QKV, Draw, uniform
from bench.peers.model import DTYPES, Case, Rule, compared, largest, not_close, words
from tests.mutants.calls import Tensors, ZooCall, operands, wanted

FLASH = {"out": 4.0, "g_query": 180.0, "g_key": 16.0, "g_value": 4.0}
MASKED = {"out": 4.0, "g_query": 160.0, "g_key": 25.0, "g_value": 8.0, "g_attn_mask": 45.0}


def math_backend(call: ZooCall, dtype: torch.dtype) -> Tensors:
    """torch's math attention and its gradients in `dtype`, with the dropout mask given."""
    leaves = {n: operands(call)[n].detach().to(dtype).requires_grad_() for n in wanted(call)}
    mask = leaves.get("attn_mask", call.attn_mask)
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, -torch.inf)  # the op would add it
    # The op takes what is kept and the rate, and forms the multiplier itself.
    keep = None if call.multiplier is None else call.multiplier > 0
    rate = 0.0 if keep is None else 1.0 - 1.0 / float(call.multiplier.max())  # type: ignore[union-attr]
    out, _ = torch.ops.aten._scaled_dot_product_attention_math(
        leaves["query"], leaves["key"], leaves["value"], mask, rate, bool(call.options.get("is_causal")), keep,
        scale=call.options.get("scale"), enable_gqa=bool(call.options["enable_gqa"]),
    )  # fmt: skip
    gradients = torch.autograd.grad(out, list(leaves.values()), call.grad.to(dtype))
    return {"out": out.detach(), **{f"g_{n}": g for n, g in zip(leaves, gradients, strict=True)}}


def fudged(call: ZooCall, factors: dict[str, float]) -> Callable[[Tensors], str | None]:
    """Rejected where max|gold - x| > max(1e-5, factor · max|gold - math|), or NaN where gold has none."""
    storage = call.query.dtype
    gold = math_backend(call, torch.float64 if storage == torch.float32 else torch.float32)
    low = math_backend(call, storage)

    def judge(shown: Tensors) -> str | None:
        for name, factor in factors.items():
            want: Tensor = gold[name]
            got = shown[name].to(want.dtype)
            if got.shape != want.shape:
                return f"{name} shape"
            bad = got.isnan() & ~want.isnan()
            if bool(bad.any()):
                return f"{name} NaN"
            allowed = max(1e-5, factor * largest(want - low[name].to(want.dtype)))
            if not largest(torch.where(want.isnan(), 0.0, got - want)) <= allowed:
                return name
        return None

    return judge


def empty_rows(call: ZooCall) -> Callable[[Tensors], str | None]:
    """Every fourth row masked out: zeros there, all within 5e-3 absolute and 3e-3 relative of the math backend."""
    want = math_backend(call, torch.float64)

    def judge(shown: Tensors) -> str | None:
        for name in ("out", "g_query", "g_key", "g_value"):
            if not_close(shown[name], want[name], rtol=3e-3, atol=5e-3):
                return name
        if shown["out"][:, :, ::4].any() or shown["g_query"][:, :, ::4].any():
            return "empty rows not zero"
        return None

    return judge


def cases(dtype: str, seed: int) -> tuple[Case, ...]:
    """The flash grid (no mask, causal when square), the memory-efficient one (float mask), empty rows."""
    kind = DTYPES[dtype]
    made: list[Case] = []

    def case(name: str, shape: tuple, factors: dict[str, float] = FLASH, **options: object) -> None:
        call = Draw(seed * 100 + len(made), kind, uniform, heads_last=True).call(shape, **options)
        made.append(compared(name, call, fudged(call, factors)))

    case("flash (4,8) d 8", (2, (4, 4), 4, 8, 8))
    case("flash (64,64) d 16 causal", (2, (2, 2), 64, 64, 16), is_causal=True)
    case("flash (143,143) d 21 causal 1/d", (1, (2, 2), 143, 143, 21), is_causal=True, scale=1 / 21)
    case("flash (143,128) d 64 dropout", (1, (2, 2), 143, 128, 64), dropout=0.22)
    case("flash (64,256) d 72 gqa", (1, (4, 2), 64, 256, 72))
    case("flash (8,4) d 96 1/d dropout", (2, (4, 4), 8, 4, 96), dropout=0.48, scale=1 / 96)
    case("flash (256,256) d 32 gqa causal", (1, (2, 1), 256, 256, 32), is_causal=True)
    case("flash (64,587÷4) d 203", (1, (2, 2), 64, 147, 203))
    for queries, keys, width, dropout in ((8, 64, 16, 0.0), (143, 128, 32, 0.22), (64, 147, 64, 0.0)):
        mask = torch.rand((2, 2, queries, keys), generator=torch.Generator().manual_seed(seed + keys))
        case(
            f"masked ({queries},{keys}) d {width}", (2, (2, 2), queries, keys, width), MASKED,
            mask=mask, wants=(*QKV, "attn_mask"), dropout=dropout,
        )  # fmt: skip
    mask = torch.ones((16, 16), dtype=torch.bool)
    mask[::4] = False
    call = Draw(seed * 100 + 90, kind, uniform).call((2, (2, 2), 16, 16, 8), mask=mask)
    made.append(compared("every fourth row masked out", call, empty_rows(call)))
    return tuple(made)


PYTORCH = Rule(
    id="pytorch",
    title="PyTorch SDPA",
    source="pytorch test/test_transformers.py as stored in 2024 and 2025, and the math backend of torch 2.13.0",
    statement="Over each whole tensor, the largest distance to the math backend in float32 (float64 for float32) is "
    "at most max(1e-5, factor × the math backend's own error in the storage type). Factors: output 4, "
    "query gradient 180, key 16, value 4; with a float mask 4, 160, 25, 8 and 45 for the mask. Data and "
    "output gradient uniform on [0,1). One test masks out every fourth row and asks for zeros.",
    scaled="Lengths up to 256 of the grid up to 2048 (587 by 147), batch 2, 1 to 4 heads. Left out: the ROCm "
    "factors, tests that only run backward without comparing.",
    dtypes=("float32", "bfloat16", "float16"),
    features=words(
        "gradients bias bias_gradient multiplier grouped_heads causal mask additive_mask layout inputs_after "
        "bias_gradient_alone memory_around_inputs scale value_width hiding empty_rows zero_sizes tails"
    ),
    cases=cases,
)
