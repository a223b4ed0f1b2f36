"""The Triton tutorial: one hundredth absolute, whole tiles only."""

from __future__ import annotations

from collections.abc import Callable

from bench.peers.data import Draw, normal
from bench.peers.eager import eager
from bench.peers.model import DTYPES, Case, Rule, compared, not_close, words
from tests.mutants.calls import Tensors, ZooCall


def hundredth(call: ZooCall) -> Callable[[Tensors], str | None]:
    """Output and gradients within 1e-2 of eager attention in the same type, no relative part."""
    want = eager(call, call.query.dtype)

    def judge(shown: Tensors) -> str | None:
        return next((n for n in want if n != "lse" and not_close(shown[n], want[n], rtol=0.0, atol=1e-2)), None)

    return judge


def cases(dtype: str, seed: int) -> tuple[Case, ...]:
    """(1,2,N,64) with N = 128 and 256, causal and not, scale 0.5."""
    made = []
    for number, (length, causal) in enumerate(((128, True), (128, False), (256, True))):
        filled = Draw(seed * 100 + number, DTYPES[dtype], normal(0.5), grad_fill=normal())
        call = filled.call((1, (2, 2), length, length, 64), is_causal=causal, scale=0.5)
        made.append(compared(f"N {length}{' causal' if causal else ''}", call, hundredth(call)))
    return tuple(made)


TRITON = Rule(
    id="triton-tutorial",
    title="Triton tutorial",
    source="triton-lang/triton python/tutorials/06-fused-attention.py (stored version)",
    statement="Output and gradients within 1e-2, no relative part, of float16 eager attention. Data normal with "
    "standard deviation 0.5, output gradient standard normal, scale 0.5, lengths multiples of 128.",
    scaled="N 128 and 256 in place of 1024 (8 and 16 of the zoo's tiles). Left out: e5m2 forward.",
    dtypes=("float16",),
    features=words("gradients causal layout inputs_after memory_around_inputs scale hiding"),
    cases=cases,
)
