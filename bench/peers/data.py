"""Operands of the peers' cases, filled from a seed in the peer's own distribution."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
class Draw:
    """How operands are filled: from a seed, rounded to a type.

    heads_last: memory in [B,S,H,D] order, seen as [B,H,S,D]. grad_fill: how the output gradient is, if otherwise.
    """

    seed: int
    dtype: torch.dtype
    fill: Fill
    heads_last: bool = False
    grad_fill: Fill | None = None

    def call(
        self,
        shape: tuple[int, tuple[int, int], int, int, int],
        *,
        value_width: int | None = None,
        dropout: float = 0.0,
        wants: tuple[str, ...] = QKV,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        **options: Any,
    ) -> ZooCall:
        """A call of (batch, (query heads, key heads), queries, keys, width).

        dropout: rate of a realised multiplier, drawn here. options: further keyword arguments of the kernel.
        """
        batch, (heads, kv_heads), queries, keys, width = shape
        source = torch.Generator().manual_seed(self.seed)

        def drawn(how: Fill, *axes: int) -> Tensor:
            x = how(axes, source).to(self.dtype)
            return x.transpose(1, 2).contiguous().transpose(1, 2) if self.heads_last else x

        dv = width if value_width is None else value_width
        multiplier = None
        if dropout:
            keep = torch.rand((batch, heads, queries, keys), generator=source) >= dropout
            multiplier = keep / (1.0 - dropout)
        return ZooCall(
            query=drawn(self.fill, batch, heads, queries, width),
            key=drawn(self.fill, batch, kv_heads, keys, width),
            value=drawn(self.fill, batch, kv_heads, keys, dv),
            grad=drawn(self.grad_fill or self.fill, batch, heads, queries, dv),
            attn_mask=mask if mask is None or mask.dtype == torch.bool else mask.to(self.dtype),
            bias=None if bias is None else bias.to(self.dtype),
            multiplier=multiplier,
            wants=wants,
            options={"enable_gqa": heads != kv_heads, **options},
        )


def lengths_to_ids(lengths: tuple[int, ...]) -> Tensor:
    """Segment ids of sequences packed one after another."""
    return torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))


def alibi(seed: int, batch: int, heads: int, queries: int, keys: int) -> Tensor:
    """-slope·|i + K - Q - j| with random slopes up to 0.3 for each batch and head."""
    slopes = torch.rand((batch, heads, 1, 1), generator=torch.Generator().manual_seed(seed)) * 0.3
    row, key = torch.arange(queries)[:, None], torch.arange(keys)[None, :]
    return -slopes * (row + keys - queries - key).abs()
