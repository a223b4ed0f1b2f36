"""vLLM: bfloat16 eager attention and two constants, decode beside prefill."""

from __future__ import annotations

from collections.abc import Callable

from bench.peers.data import Draw, lengths_to_ids, normal
from bench.peers.eager import eager
from bench.peers.model import DTYPES, Case, Rule, compared, not_close, words
from tests.mutants.calls import Tensors, ZooCall

LOWER = {"is_causal": True, "causal": "lower_right"}


def close(call: ZooCall) -> Callable[[Tensors], str | None]:
    """Output within 1.5e-2 + 1e-2·|ref| of eager attention in the same type."""
    want = eager(call, call.query.dtype)["out"]
    return lambda shown: "out" if not_close(shown["out"], want, rtol=1e-2, atol=1.5e-2) else None


def cases(dtype: str, seed: int) -> tuple[Case, ...]:
    """Decode rows, a prefill, window, soft cap 50, and a mix of both packed."""
    made: list[Case] = []

    def case(name: str, shape: tuple, **options: object) -> None:
        call = Draw(seed * 100 + len(made), DTYPES[dtype], normal(), heads_last=True).call(shape, wants=(), **options)
        made.append(compared(name, call, close(call)))

    case("decode, 463 keys", (2, (4, 2), 1, 463, 128), **LOWER)
    case("decode, 2011÷4 keys", (1, (8, 2), 1, 503, 128), **LOWER)
    case("prefill (129,463÷2)", (1, (4, 2), 129, 231, 128), **LOWER)
    case("window 64", (1, (4, 2), 129, 231, 64), window=(63, 0), **LOWER)
    case("soft cap 50", (1, (4, 2), 70, 130, 64), softcap=50.0, **LOWER)
    ids = lengths_to_ids((1, 5, 60)), lengths_to_ids((90, 18, 60))
    case("mixed batch, packed", (1, (4, 2), 66, 168, 128), segments=ids)
    return tuple(made)


VLLM = Rule(
    id="vllm",
    title="vLLM",
    source="vllm-project/vllm tests/kernels/attention/test_flash_attn.py at f89fedd",
    statement="Output within 1.5e-2 + 1e-2·|ref| of eager attention in the storage type, scores included. Standard "
    "normal data; decode and prefill mixes, grouped heads, window, soft cap 50. Forward only.",
    scaled="Lengths divided by 2 to 4. The page table is a packed call here; left out: e4m3 (0.15/0.15).",
    dtypes=("bfloat16", "float16"),
    features=words(
        "grouped_heads window segments softcap causal lower_right layout inputs_after memory_around_inputs "
        "scale hiding tails"
    ),
    cases=cases,
)
