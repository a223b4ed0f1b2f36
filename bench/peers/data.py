"""Operands of the peers' cases, filled from a seed in the peer's own distribution."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from tests.mutants.calls import ZooCall

Fill = Callable[..., Tensor]
QKV = ("query", "key", "value")


def normal(size: float = 1.0) -> Fill:
    """Gaussian entries of that standard deviation."""
    return lambda shape, source: torch.randn(shape, generator=source) * size


def uniform(shape: tuple[int, ...], source: torch.Generator) -> Tensor:
    """Entries uniform on [0, 1)."""
    return torch.rand(shape, generator=source)


@dataclass(frozen=True)
class Operands:
    """What a case asks of its operands beside their shape; the defaults are a call without any extras.

    value_width: another one than the key's. heads_last: memory in [B,S,H,D] order, seen as [B,H,S,D]. dropout: rate of
    a realised multiplier. grad_fill: another distribution for the output gradient. wants: inputs that need gradients.
    """

    value_width: int | None = None
    heads_last: bool = False
    dropout: float = 0.0
    grad_fill: Fill | None = None
    wants: tuple[str, ...] = QKV
    mask: Tensor | None = None
    bias: Tensor | None = None


NAMES = frozenset(field.name for field in fields(Operands))


def call_of(
    seed: int, dtype: torch.dtype, fill: Fill, shape: tuple[int, tuple[int, int], int, int, int], **asked: Any
) -> ZooCall:
    """A call of (batch, (query heads, key heads), queries, keys, width), rounded to dtype.

    asked: fields of `Operands`; every other name is an option of the kernel.
    """
    of = Operands(**{name: asked.pop(name) for name in NAMES & asked.keys()})
    batch, (heads, kv_heads), queries, keys, width = shape
    source = torch.Generator().manual_seed(seed)

    def drawn(how: Fill, *axes: int) -> Tensor:
        x = how(axes, source).to(dtype)
        return x.transpose(1, 2).contiguous().transpose(1, 2) if of.heads_last else x

    dv = width if of.value_width is None else of.value_width
    multiplier = None
    if of.dropout:
        keep = torch.rand((batch, heads, queries, keys), generator=source) >= of.dropout
        multiplier = keep / (1.0 - of.dropout)
    return ZooCall(
        query=drawn(fill, batch, heads, queries, width),
        key=drawn(fill, batch, kv_heads, keys, width),
        value=drawn(fill, batch, kv_heads, keys, dv),
        grad=drawn(of.grad_fill or fill, batch, heads, queries, dv),
        attn_mask=of.mask if of.mask is None or of.mask.dtype == torch.bool else of.mask.to(dtype),
        bias=None if of.bias is None else of.bias.to(dtype),
        multiplier=multiplier,
        wants=of.wants,
        options={"enable_gqa": heads != kv_heads, **asked},
    )


def lengths_to_ids(lengths: tuple[int, ...]) -> Tensor:
    """Segment ids of sequences packed one after another."""
    return torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))


def alibi(seed: int, batch: int, heads: int, queries: int, keys: int) -> Tensor:
    """-slope·|i + K - Q - j| with random slopes up to 0.3 for each batch and head."""
    slopes = torch.rand((batch, heads, 1, 1), generator=torch.Generator().manual_seed(seed)) * 0.3
    row, key = torch.arange(queries)[:, None], torch.arange(keys)[None, :]
    return -slopes * (row + keys - queries - key).abs()
