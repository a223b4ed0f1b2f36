"""xformers: constants by dtype, many bias classes, odd lengths, NaN in the padding."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import torch

from bench.peers.data import QKV, Draw, lengths_to_ids, normal
from bench.peers.eager import eager
from bench.peers.model import DTYPES, Case, Kernel, Rule, compared, not_close, words
from tests.mutants.calls import Tensors, ZooCall

# (absolute, relative)
FORWARD = {"float32": (3e-4, 2e-5), "float16": (4e-3, 4e-4), "bfloat16": (2e-2, 5e-3)}
BACKWARD = {"float32": (9e-4, 1e-4), "float16": (0.2, 0.02), "bfloat16": (0.9, 0.1)}
LENGTHS = (2, 3, 15, 31, 34, 68, 129)


def constants(call: ZooCall, dtype: str) -> Callable[[Tensors], str | None]:
    """Each entry within the dtype's constants of float32 eager attention; LSE within 2e-4."""
    want = eager(call, torch.float32, back=False)

    def judge(shown: Tensors) -> str | None:
        for name, exact in want.items():
            atol, rtol = (2e-4, 2e-4) if name == "lse" else (FORWARD if name == "out" else BACKWARD)[dtype]
            if not_close(shown[name], exact, rtol=rtol, atol=atol):
                return name
        return None

    return judge


def padding_poisoned(seed: int, kind: torch.dtype) -> Case:
    """NaN in keys and values behind the used length: the same bits as with zeros there."""
    used = 34
    mask = (torch.arange(68) < used)[None, None, None]
    clean = Draw(seed, kind, normal(3.0)).call((2, (2, 2), 15, 68, 16), mask=mask)
    tail = (torch.arange(68) >= used)[None, None, :, None]
    poison = replace(
        clean, key=clean.key.masked_fill(tail, torch.nan), value=clean.value.masked_fill(tail, torch.nan)
    )  # fmt: skip
    clean = replace(clean, key=clean.key.masked_fill(tail, 0.0), value=clean.value.masked_fill(tail, 0.0))

    def check(kernel: Kernel) -> str | None:
        a, b = kernel.run(clean), kernel.run(poison)
        return None if all(torch.equal(a[n], b[n]) for n in ("out", "lse")) else "NaN in the padding shows"

    return Case("poisoned padding", check)


def cases(dtype: str, seed: int) -> tuple[Case, ...]:
    """Each bias class once on a fixed shape, then random shapes, then empty tensors and poisoned padding."""
    kind, draw, rng = DTYPES[dtype], normal(3.0), random.Random(seed)
    made: list[Case] = []

    def case(name: str, shape: tuple, **options: object) -> None:
        call = Draw(seed * 100 + len(made), kind, draw, grad_fill=normal(), heads_last=True).call(shape, **options)
        made.append(compared(name, call, constants(call, dtype)))

    case("no bias", (2, (3, 3), 34, 68, 32))
    case("tensor bias with gradient", (2, (2, 2), 31, 68, 32), mask=torch.randn(2, 2, 31, 68,
         generator=torch.Generator().manual_seed(seed)) * 3, wants=(*QKV, "attn_mask"))  # fmt: skip
    case("lower triangular", (2, (2, 2), 68, 68, 32), is_causal=True)
    case("lower triangular from bottom right", (2, (2, 2), 34, 68, 32), is_causal=True, causal="lower_right")
    case("local, from bottom right", (2, (2, 2), 34, 68, 32), window=(15, 0), causal="lower_right")
    ids = lengths_to_ids((15, 31, 22)), lengths_to_ids((34, 3, 31))
    case("block diagonal", (1, (2, 2), 68, 68, 32), segments=ids)
    case("block diagonal causal", (1, (2, 2), 68, 68, 32), segments=(ids[0], ids[0]), is_causal=True)
    case("grouped heads", (2, (4, 2), 31, 129, 32))
    case("value width, own scale", (2, (2, 2), 15, 34, 32), value_width=48, scale=0.3)
    case("dropout", (2, (2, 2), 31, 68, 32), dropout=0.3)
    for number in range(6):
        queries, keys, width = rng.choice(LENGTHS), rng.choice(LENGTHS), rng.choice((16, 32, 40, 64))
        causal = {"is_causal": True} if rng.random() < 0.5 and queries <= keys else {}
        case(f"random shape {number} ({queries},{keys})", (rng.choice((1, 3)), (2, 2), queries, keys, width), **causal)
    case("no keys", (2, (2, 2), 3, 0, 16))
    case("no queries", (2, (2, 2), 0, 3, 16))
    made.append(padding_poisoned(seed, kind))
    return tuple(made)


XFORMERS = Rule(
    id="xformers",
    title="xformers",
    source="facebookresearch/xformers tests/test_mem_eff_attention.py and ops/fmha/common.py at ca6d2aa (2026-04-21)",
    statement="Each entry within atol + rtol·|ref| of float32 eager attention: forward 3e-4/2e-5 in float32, "
    "4e-3/4e-4 in float16, 2e-2/5e-3 in bfloat16; gradients 9e-4/1e-4, 0.2/0.02, 0.9/0.1; LSE 2e-4. Data "
    "3 × standard normal. NaN in the padding must not change a bit. Bias classes, and random shapes from "
    "a fixed seed.",
    scaled="One shape for each bias class and 6 random ones in place of 200; lengths up to 129. Left out: paged "
    "and gappy masks, the binomial test of the kernel's own random numbers.",
    dtypes=("float32", "bfloat16", "float16"),
    features=words(
        "gradients bias bias_gradient multiplier grouped_heads window segments causal lower_right mask "
        "additive_mask lse layout inputs_after nan_in_hidden memory_around_inputs scale value_width hiding "
        "zero_sizes tails"
    ),
    cases=cases,
)
