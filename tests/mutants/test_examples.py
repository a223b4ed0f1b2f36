"""The two example kernels: one is right, the other is wrong in exactly one line."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from .calls import ZooCall, fresh, operands, wanted
from .draws import draw
from .kernel import STORAGE_TYPES
from .reference import expect, worst_ratio

EXAMPLES = Path(__file__).parents[2] / "examples"
DRAWS = 400


def load(name: str) -> Callable[..., Tensor]:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.attention


def within_the_signature(call: ZooCall) -> bool:
    """Whether torch's functional signature can say this call."""
    extras = {"window", "segments", "softcap", "head_map"} & call.options.keys()
    return not extras and call.bias is None and call.multiplier is None and call.options.get("causal") != "lower_right"


def ratio(attention: Callable[..., Tensor], call: ZooCall) -> float:
    given = {n: fresh(t) for n, t in operands(call).items()}
    names = wanted(call)
    for name in names:
        given[name].requires_grad_()
    out = attention(
        given["query"], given["key"], given["value"], attn_mask=given.get("attn_mask"),
        is_causal=bool(call.options.get("is_causal")), scale=call.options.get("scale"), enable_gqa=True,
    )  # fmt: skip
    assert out.dtype == call.query.dtype
    gradients = torch.autograd.grad(out, [given[n] for n in names], given["grad"])
    expected = expect(call)
    del expected.value["lse"]
    shown = {"out": out.detach()} | {f"g_{n}": g for n, g in zip(names, gradients, strict=True)}
    return worst_ratio(shown, expected)[0]


CALLS = [i for i in range(DRAWS) if within_the_signature(draw(i))]


@pytest.mark.parametrize("dtype", STORAGE_TYPES, ids=str)
def test_tiled_attention_agrees_with_the_reference(dtype: torch.dtype) -> None:
    attention = load("tiled_attention")
    assert max(ratio(attention, draw(i).to(dtype)) for i in CALLS) <= 1.0


@pytest.mark.parametrize("dtype", STORAGE_TYPES, ids=str)
def test_broken_attention_does_not(dtype: torch.dtype) -> None:
    attention = load("broken_attention")
    assert max(ratio(attention, draw(i).to(dtype)) for i in CALLS) > 1.0


def test_the_two_examples_differ_in_one_line_of_code() -> None:
    right, wrong = (EXAMPLES / f"{n}_attention.py" for n in ("tiled", "broken"))
    note, _, code = wrong.read_text().partition("\n")
    assert note.startswith("#")
    pairs = zip(right.read_text().splitlines(), code.splitlines(), strict=True)
    changed = [a for a, b in pairs if a != b and "certify run" not in a]
    assert len(changed) == 1


@pytest.mark.parametrize("name", ["tiled_attention", "broken_attention"])
def test_dropout_is_refused_with_a_reason(name: str) -> None:
    x = torch.ones(1, 1, 1, 1)
    with pytest.raises(NotImplementedError, match="no dropout"):
        load(name)(x, x, x, dropout_p=0.1)
