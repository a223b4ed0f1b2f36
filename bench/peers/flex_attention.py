"""FlexAttention: a mean error hardly above that of eager attention in the same type."""

from __future__ import annotations

from collections.abc import Callable

import torch

from bench.peers.data import Draw, alibi, lengths_to_ids, normal
from bench.peers.eager import eager
from bench.peers.model import DTYPES, Case, Rule, compared, words
from tests.mutants.calls import Tensors, ZooCall

FACTOR = {"float32": 10.0, "bfloat16": 1.1, "float16": 1.1}


def mean_rule(call: ZooCall, factor: float) -> Callable[[Tensors], str | None]:
    """mean|x - gold| ≤ factor · mean|eager - gold| for output and gradients, gold in float64."""
    gold = eager(call, torch.float64, back=False)
    same = eager(call, call.query.dtype)

    def judge(shown: Tensors) -> str | None:
        for name, want in gold.items():
            if name == "lse":
                continue
            error = (shown[name].double() - want).abs().mean()
            if not float(error) <= factor * float((same[name].double() - want).abs().mean()):
                return name
        return None

    return judge


def empty_rows(call: ZooCall, rows: torch.Tensor) -> Callable[[Tensors], str | None]:
    """Rows that a block mask hides: outputs that sum to zero, LSE minus infinity."""

    def judge(shown: Tensors) -> str | None:
        if float(shown["out"][:, :, rows].sum()) != 0.0:
            return "empty rows do not sum to zero"
        return None if bool((shown["lse"][:, :, rows] == -torch.inf).all()) else "LSE of an empty row"

    return judge


def cases(dtype: str, seed: int) -> tuple[Case, ...]:
    """No modification, causal, relative bias, ALiBi, soft cap, window, prefix, documents, grouped heads, empty rows."""
    kind, draw, factor = DTYPES[dtype], normal(), FACTOR[dtype]
    made: list[Case] = []
    n, square = 128, (1, (2, 2), 128, 128, 64)
    row, key = torch.arange(n)[:, None], torch.arange(n)[None, :]

    def case(name: str, shape: tuple = square, **options: object) -> None:
        call = Draw(seed * 100 + len(made), kind, draw).call(shape, **options)
        made.append(compared(name, call, mean_rule(call, factor)))

    case("no modification")
    case("causal", is_causal=True)
    case("relative bias", bias=(row - key).float())
    case("ALiBi causal", bias=alibi(seed, 1, 2, n, n), is_causal=True)
    case("soft cap", softcap=20.0)
    case("sliding window", mask=(row >= key) & (row - key <= 32))
    case("prefix", mask=(key < 40) | (row >= key))
    ids = lengths_to_ids((50, 30, 48))
    case("documents", mask=(ids[:, None] == ids[None, :]) & (row >= key))
    case("grouped heads", (1, (4, 2), 128, 128, 64), is_causal=True)
    case("rectangle", (1, (2, 2), 64, 192, 64))
    hidden = torch.arange(n) < 32
    call = Draw(seed * 100 + 80, kind, draw).call(square, mask=(~hidden)[:, None].expand(n, n))
    made.append(compared("empty rows", call, empty_rows(call, hidden)))
    return tuple(made)


FLEX = Rule(
    id="flex-attention",
    title="FlexAttention",
    source="pytorch test/inductor/test_flex_attention.py (stored version, 2025)",
    statement="For output and each gradient, the mean absolute error against float64 eager attention is at most 1.1 "
    "times (float32: 10 times) that of eager attention in the same type. Standard normal data. Fully "
    "masked rows: the outputs sum to zero and LSE is minus infinity.",
    scaled="Length 128 in place of 2048, one batch, 2 to 4 heads. Left out: paged cache; the factor 20 of some "
    "paged tests.",
    dtypes=("float32", "bfloat16", "float16"),
    features=words(
        "gradients bias bias_gradient grouped_heads softcap causal mask lse layout inputs_after "
        "memory_around_inputs scale value_width hiding empty_rows tails"
    ),
    cases=cases,
)
