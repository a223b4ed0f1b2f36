"""KernelBench: one shape, five draws, two constants."""

from __future__ import annotations

from collections.abc import Callable

from bench.peers.data import Draw, uniform
from bench.peers.eager import eager
from bench.peers.model import DTYPES, Case, Rule, compared, not_close, words
from tests.mutants.calls import Tensors, ZooCall

TRIALS = 5
LIMIT = {"float32": 1e-4, "bfloat16": 1e-2, "float16": 1e-2}


def close(call: ZooCall, limit: float) -> Callable[[Tensors], str | None]:
    """Output within limit + limit·|ref| of eager attention in the same type."""
    want = eager(call, call.query.dtype)["out"]
    return lambda shown: "out" if not_close(shown["out"], want, rtol=limit, atol=limit) else None


def cases(dtype: str, seed: int) -> tuple[Case, ...]:
    """The one problem on attention, five times."""
    made = []
    for number in range(TRIALS):
        call = Draw(seed * 100 + number, DTYPES[dtype], uniform).call((2, (4, 4), 128, 128, 256), wants=())
        made.append(compared(f"trial {number}", call, close(call, LIMIT[dtype])))
    return tuple(made)


KERNELBENCH = Rule(
    id="kernelbench",
    title="KernelBench",
    source="ScalingIntelligence/KernelBench src/kernelbench/eval.py and level 1 problem 97 at 423217d (2026-03-05)",
    statement="Output within 1e-4 (16-bit: 1e-2) absolute and as much relative of eager attention, on five draws of "
    "one shape, data uniform on [0,1). No mask, no scale, forward only.",
    scaled="(2, 4, 128, 256) in place of (32, 32, 512, 1024).",
    dtypes=("float32", "bfloat16", "float16"),
    features=words("inputs_after tails"),
    cases=cases,
)
