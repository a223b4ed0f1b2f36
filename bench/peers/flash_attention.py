"""FlashAttention 2 and 3: no worse than twice what the same precision gives in eager operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from bench.peers.data import Draw, alibi, lengths_to_ids, normal
from bench.peers.eager import eager
from bench.peers.model import DTYPES, Case, Kernel, Rule, compared, largest, words
from tests.mutants.calls import Tensors, ZooCall

Slack = Callable[[Tensor], float]
LOWER = {"is_causal": True, "causal": "lower_right"}


@dataclass(frozen=True)
class Limits:
    """Multiples of the baseline's largest error for the output and for gradients, and what is added to each."""

    out: float = 2.0
    grad: float = 3.0
    out_more: Slack = lambda ref: 0.0
    grad_more: Slack = lambda ref: 0.0


def ratio_rule(call: ZooCall, limits: Limits) -> Callable[[Tensors], str | None]:
    """max|x - ref| ≤ multiple · max|baseline - ref| + more, over each whole tensor."""
    reference = eager(call, torch.float32)
    baseline = eager(call, call.query.dtype, scale_on_key=True)

    def judge(shown: Tensors) -> str | None:
        for name, want in reference.items():
            if name == "lse":
                continue  # neither project compares it
            times, more = (limits.out, limits.out_more) if name == "out" else (limits.grad, limits.grad_more)
            allowed = times * largest(baseline[name] - want) + more(want)
            if not largest(shown[name] - want) <= allowed:
                return name
        return None

    return judge


def repeated(call: ZooCall, times: int = 4) -> Case:
    """The same call again and again, bit for bit: the race and determinism tests."""

    def check(kernel: Kernel) -> str | None:
        first = kernel.run(call)
        for _ in range(times):
            again = kernel.run(call)
            if any(not torch.equal(first[n], again[n]) for n in ("out", "lse", "g_query", "g_key", "g_value")):
                return "not the same bits"
        return None

    return Case("repeats", check)


def fa2_cases(dtype: str, seed: int) -> tuple[Case, ...]:
    """Output, packed projections, variable lengths, causal rectangles, bias, dropout, soft cap, window."""
    kind, draw = DTYPES[dtype], normal()
    plain, causal = Limits(), Limits(grad=2.0, out_more=lambda r: 1e-5, grad_more=lambda r: 1e-5)
    packed = Limits(grad=2.0)

    def case(name: str, shape: tuple, limits: Limits = plain, **options: object) -> Case:
        call = Draw(seed * 100 + len(cases), kind, draw, heads_last=True).call(shape, **options)
        return compared(name, call, ratio_rule(call, limits))

    cases: list[Case] = []
    window = torch.randint(0, 113, (2,), generator=torch.Generator().manual_seed(seed)).tolist()
    cases.append(case("mha (113,203) d 59", (1, (2, 2), 113, 203, 59)))
    cases.append(case("gqa (128,217) d 64 causal dropout", (1, (4, 2), 128, 217, 64), dropout=0.17, **LOWER))
    cases.append(
        case("mqa (113,211) d 40 window", (1, (2, 1), 113, 211, 40), window=tuple(window), causal="lower_right")
    )
    cases.append(case("mha (108,256) d 32 softcap", (1, (2, 2), 108, 256, 32), softcap=50.0))
    cases.append(
        case("mha (108,256) d 96 alibi causal", (2, (2, 2), 54, 128, 96), bias=alibi(seed, 2, 2, 54, 128), **LOWER)
    )
    cases.append(case("gqa (113,203) d 111 dropout", (1, (4, 2), 113, 203, 111), dropout=0.17))
    cases.append(case("mha (128,217) d 59 causal softcap", (1, (2, 2), 128, 217, 59), softcap=50.0, **LOWER))
    cases.append(
        case("gqa (113,203) window alibi", (1, (4, 2), 113, 203, 64), window=tuple(window), causal="lower_right",
             bias=alibi(seed + 9, 1, 4, 113, 203))
    )  # fmt: skip
    cases.append(case("(512,256)÷4 causal", (1, (2, 2), 128, 64, 64), causal, **LOWER))
    cases.append(case("(1023,1024)÷8 causal", (1, (2, 2), 127, 128, 64), causal, **LOWER))
    cases.append(case("(1024,1023)÷8 causal", (1, (2, 2), 128, 127, 32), causal, **LOWER))
    cases.append(case("packed projections, 97", (2, (2, 2), 97, 97, 32), packed, dropout=0.17))
    ids = lengths_to_ids((31, 44, 38)), lengths_to_ids((64, 60, 66))
    cases.append(case("variable lengths, gqa", (1, (4, 2), 113, 190, 40), segments=ids))
    same = lengths_to_ids((31, 44, 22)), lengths_to_ids((31, 44, 22))
    cases.append(case("variable lengths, causal", (1, (2, 2), 97, 97, 64), packed, segments=same, **LOWER))
    cases.append(repeated(Draw(seed, kind, draw, heads_last=True).call((2, (2, 2), 64, 64, 32), **LOWER)))
    return tuple(cases)


def noise(ref: Tensor) -> float:
    """2·max|(ref + 0.3 - 0.3) - ref| in the tensor's own type: rounding noise at the size of ref + 0.3.

    Each step in float32 with one rounding, as on a GPU; torch on the CPU would round the constant too.
    """
    moved = ((ref.float() + 0.3).to(ref.dtype).float() - 0.3).to(ref.dtype)
    return 2.0 * largest(moved.float() - ref.float())


def fa3_cases(dtype: str, seed: int) -> tuple[Case, ...]:
    """Odd lengths, causal, window, soft cap, grouped heads, variable lengths with some empty."""
    kind, draw = DTYPES[dtype], normal()
    plain = Limits(2.0, 2.0, noise, noise)
    capped = Limits(3.0, 3.0, noise, lambda r: noise(r) + 3e-4)

    def case(name: str, shape: tuple, limits: Limits = plain, **options: object) -> Case:
        call = Draw(seed * 100 + 50 + len(cases), kind, draw, heads_last=True).call(shape, **options)
        return compared(name, call, ratio_rule(call, limits))

    cases: list[Case] = []
    window = torch.randint(0, 113, (2,), generator=torch.Generator().manual_seed(seed)).tolist()
    cases.append(case("(239,1)", (2, (2, 2), 239, 1, 64)))
    cases.append(case("(799,3)÷4", (1, (2, 2), 200, 3, 64), **LOWER))
    cases.append(case("(113,203) gqa", (1, (4, 2), 113, 203, 64)))
    cases.append(case("(128,217) mqa causal", (1, (2, 1), 128, 217, 64), **LOWER))
    cases.append(case("(113,211) window", (1, (2, 2), 113, 211, 64), window=tuple(window), causal="lower_right"))
    cases.append(case("(108,256) softcap", (1, (2, 2), 108, 256, 64), capped, softcap=15.0))
    cases.append(case("(256,512)÷4", (2, (2, 2), 64, 128, 128), value_width=64))
    cases.append(case("(512,256)÷4 causal", (1, (2, 2), 128, 64, 64), **LOWER))
    cases.append(case("(1023,1024)÷8 causal", (1, (2, 2), 127, 128, 64), **LOWER))
    ids = lengths_to_ids((20, 0, 31, 44)), lengths_to_ids((33, 40, 0, 60))
    cases.append(case("variable lengths, some empty", (1, (4, 2), 95, 133, 64), segments=ids))
    cases.append(repeated(Draw(seed, kind, draw, heads_last=True).call((2, (2, 2), 64, 64, 64), **LOWER)))
    return tuple(cases)


FA2 = Rule(
    id="flash-attention-2",
    title="FlashAttention 2",
    source="Dao-AILab/flash-attention tests/test_flash_attn.py at 0251105 (2026-08-15)",
    statement="Over each whole tensor, the largest distance to float32 eager attention (cast back) is at most twice "
    "that of eager attention in the storage type with the scale on the key; three times for gradients, "
    "twice plus 1e-5 in the causal tests. Standard normal data. Repeated calls give the same bits. LSE is "
    "not compared.",
    scaled="Lengths from 512 on are divided by 4 or 8 (the zoo's tiles are 16, not 128); batch and heads shrink. "
    "Left out: paged and rotary cache, and the rest of the 508,777 parameter combinations. Dropped "
    "entries are given.",
    dtypes=("bfloat16", "float16"),
    features=words(
        "gradients bias multiplier grouped_heads window segments softcap causal lower_right lse layout "
        "inputs_after repeat_calls memory_around_inputs scale hiding empty_rows tails"
    ),
    cases=fa2_cases,
)
FA3 = Rule(
    id="flash-attention-3",
    title="FlashAttention 3",
    source="Dao-AILab/flash-attention hopper/test_flash_attn.py at 0251105 (2026-08-15)",
    statement="As FlashAttention 2 with factor 2 (3 with soft cap) for output and gradients, plus 2·max|(ref + 0.3 "
    "- 0.3) - ref| taken in the storage type, plus 3e-4 for gradients with soft cap.",
    scaled="Lengths from 256 on are divided by 4 or 8. Left out: e4m3, paged cache, attention chunks.",
    dtypes=("bfloat16", "float16"),
    features=words(
        "gradients grouped_heads window segments softcap causal lower_right lse layout inputs_after "
        "repeat_calls memory_around_inputs scale value_width hiding empty_rows tails"
    ),
    cases=fa3_cases,
)
