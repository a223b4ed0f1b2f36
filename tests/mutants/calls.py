"""Calls of the zoo kernel as plain data, how to run one, and what is compared."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from .kernel import attention

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class ZooCall:
    """Operands and options of one call.

    query, key, value, grad are leaves to copy; attn_mask, bias, multiplier may be None; wants lists the operands
    whose gradient is asked for; options are further keyword arguments of the kernel.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    grad: Tensor
    attn_mask: Tensor | None = None
    bias: Tensor | None = None
    multiplier: Tensor | None = None
    wants: tuple[str, ...] = ("query", "key", "value", "attn_mask", "bias")
    options: dict[str, object] = field(default_factory=dict)

    def to(self, dtype: torch.dtype) -> ZooCall:
        """The same call in another storage type; boolean masks and the realised dropout multiplier keep theirs."""
        floats = {n: t for n, t in operands(self).items() if t.is_floating_point() and n != "multiplier"}
        return replace(self, **{n: fresh(t, dtype) for n, t in floats.items()})


def operands(call: ZooCall) -> Tensors:
    """Every tensor of the call by name."""
    names = ("query", "key", "value", "grad", "attn_mask", "bias", "multiplier")
    return {n: t for n in names if (t := getattr(call, n)) is not None}


def wanted(call: ZooCall) -> list[str]:
    """The operands whose gradients are asked for."""
    given = operands(call)
    return [n for n in call.wants if n in given and given[n].is_floating_point()]


def fresh(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """A copy of x, perhaps in another type, with its strides, its offset and the memory around it."""
    copy = memory(x).to(dtype or x.dtype, copy=True)
    return torch.as_strided(copy, x.shape, x.stride(), x.storage_offset())


def memory(x: Tensor) -> Tensor:
    """All elements of the memory x lies in, the ones outside x too."""
    return torch.as_strided(x.detach(), (x.untyped_storage().nbytes() // max(1, x.element_size()),), (1,), 0)


def run(call: ZooCall, bugs: frozenset[str] = frozenset()) -> Tensors | str:
    """Everything the kernel shows: out, lse, g_<operand>, and the operands' memory afterwards.

    A refusal (ValueError, TypeError, NotImplementedError) is returned as its type's name: it is behaviour too.
    """
    given = {n: fresh(t) for n, t in operands(call).items()}
    names = wanted(call)
    for name in names:
        given[name].requires_grad_()
    grad = given["grad"]
    inputs = {n: t for n, t in given.items() if n != "grad"}
    try:
        out, lse = attention(**inputs, **call.options, return_lse=True, bugs=bugs)  # type: ignore[arg-type]
        shown = {"out": out.detach(), "lse": lse.detach()}
        if names:
            fitting = grad[:, :, : out.shape[-2]] if grad.shape != out.shape else grad
            gradients = torch.autograd.grad(out, [given[n] for n in names], fitting.to(out.dtype))
            shown |= {f"g_{n}": g for n, g in zip(names, gradients, strict=True)}
    except (ValueError, TypeError, NotImplementedError) as refusal:
        return type(refusal).__name__
    return shown | {f"after_{n}": memory(t) for n, t in given.items()}


def same_bits(a: Tensors | str, b: Tensors | str) -> bool:
    """Whether two runs showed the same types, shapes and bits; NaN equals NaN, -0 differs from 0."""
    if isinstance(a, str) or isinstance(b, str):
        return a == b
    if a.keys() != b.keys():
        return False
    return all(same_tensor_bits(a[n], b[n]) for n in a)


def same_tensor_bits(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors agree in type, shape and every bit, all NaN alike."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if not a.is_floating_point():
        return torch.equal(a, b)
    both_nan = torch.isnan(a) & torch.isnan(b)
    equal = (a == b) & (torch.signbit(a) == torch.signbit(b))
    return bool((equal | both_nan).all())
