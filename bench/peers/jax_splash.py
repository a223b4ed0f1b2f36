"""JAX splash attention: Hypothesis over masks, five examples, always the same ones."""

from __future__ import annotations

import random
from collections.abc import Callable

import torch

from bench.peers.data import Draw, uniform
from bench.peers.eager import eager
from bench.peers.model import DTYPES, Case, Rule, compared, not_close, words
from tests.mutants.calls import Tensors, ZooCall

EXAMPLES = 5


def close(call: ZooCall) -> Callable[[Tensors], str | None]:
    """Output within 3e-3, LSE within 1e-3, gradients within 5e-2, absolute and relative alike."""
    want = eager(call, torch.float32, back=False)
    limits = {"out": 3e-3, "lse": 1e-3}

    def judge(shown: Tensors) -> str | None:
        for name, exact in want.items():
            limit = limits.get(name, 5e-2)
            if not_close(shown[name], exact, rtol=limit, atol=limit):
                return name
        return None

    return judge


def cases(dtype: str, seed: int) -> tuple[Case, ...]:
    """Five draws of a shape and one of causal, full, random, local with offset; every row sees a key."""
    rng, made = random.Random(seed), []
    for number in range(EXAMPLES):
        queries, keys = rng.choice((64, 128)), rng.choice((64, 128, 192))
        row, key = torch.arange(queries)[:, None], torch.arange(keys)[None, :]
        kind = ("causal", "local", "random", "full", "causal")[number]
        mask, options = None, {}
        if kind == "causal" and number == 0:
            options = {"is_causal": True}
        elif kind == "causal":
            mask = key <= row + keys // 2
        elif kind == "local":
            offset = rng.randrange(keys // 2)
            mask = (key - row - offset).abs() <= rng.choice((32, 100))
        elif kind == "random":
            mask = torch.rand((queries, keys), generator=torch.Generator().manual_seed(seed)) < 0.5
        if mask is not None:
            mask[~mask.any(-1), 0] = True
        heads = rng.choice(((2, 2), (4, 2)))
        call = Draw(seed * 100 + number, DTYPES[dtype], uniform).call(
            (1, heads, queries, keys, 64), mask=mask, **options
        )
        made.append(compared(f"{kind} ({queries},{keys})", call, close(call)))
    return tuple(made)


SPLASH = Rule(
    id="jax-splash",
    title="JAX splash",
    source="jax-ml/jax tests/pallas/tpu_splash_attention_kernel_test.py at cec06d1 (2026-08-08)",
    statement="Output within 3e-3 + 3e-3·|ref|, LSE within 1e-3, gradients within 5e-2, of eager attention. Data "
    "uniform on [0,1). Hypothesis draws shape and mask (causal, full, random, local with offset), 5 "
    "examples, always the same; rows without a visible key are not drawn.",
    scaled="Lengths up to 192. Left out: its soft cap; compositions of masks, which are commented out in the source.",
    dtypes=("float32", "bfloat16"),
    features=words("gradients grouped_heads causal mask lse layout inputs_after memory_around_inputs hiding tails"),
    cases=cases,
)
