"""torch.autograd.gradcheck in float64: the backward pass is the derivative of the forward pass, right or wrong."""

from __future__ import annotations

from functools import partial

import torch

from bench.peers.data import Draw, normal
from bench.peers.model import Case, Kernel, Rule, words


def cases(dtype: str, seed: int) -> tuple[Case, ...]:
    """(4,4,2,16) in float64, whatever the row: plain, causal, masked."""
    made: list[Case] = []
    mask = torch.tensor([[True, False], [True, True]])
    for number, (name, options) in enumerate(
        (("plain", {}), ("causal", {"is_causal": True}), ("masked", {"attn_mask": mask}))
    ):
        call = Draw(seed * 100 + number, torch.float64, normal()).call((4, (4, 4), 2, 2, 16))
        inputs = (call.query, call.key, call.value)

        def check(kernel: Kernel, inputs: tuple = inputs, options: dict = options) -> str | None:
            leaves = [x.clone().requires_grad_() for x in inputs]
            function = partial(kernel.function, **options)
            passed = torch.autograd.gradcheck(function, leaves, fast_mode=True, raise_exception=False)
            return None if passed else "gradients are not the derivative"

        made.append(Case(name, check))
    return tuple(made)


GRADCHECK = Rule(
    id="gradcheck",
    title="gradcheck",
    source="pytorch test/test_transformers.py, torch.autograd.gradcheck of torch 2.13.0",
    statement="One random projection of the backward pass agrees with finite differences of the forward pass, "
    "float64, on 4×4×2×16 standard normal data. It never looks at the forward values themselves.",
    scaled="Nothing. Listed under float32, run in float64 as it must be.",
    dtypes=("float32",),
    features=words(
        "gradients causal mask additive_mask bias bias_gradient grouped_heads scale value_width hiding "
        "empty_rows layout inputs_after tails multiplier bias_gradient_alone zero_sizes memory_around_inputs"
    ),
    cases=cases,
)
