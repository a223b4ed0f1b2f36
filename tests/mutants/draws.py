"""Seeded random zoo calls over every feature of the kernel; draw i is a function of i alone."""

from __future__ import annotations

import random

import torch
from torch import Tensor

from .calls import ZooCall

WIDE = torch.float64
LENGTHS = (1, 2, 3, 15, 16, 17, 31, 32, 33, 40, 47, 48, 49, 65)


def draw(index: int) -> ZooCall:
    """Call number index in float64, rounded to bfloat16 first so that every storage type holds it exactly."""
    rng, source = random.Random(index), torch.Generator().manual_seed(index)

    def values(*shape: int, spread: float = 1.0) -> Tensor:
        x = torch.randn(*shape, generator=source, dtype=WIDE) * spread
        return laid_out(rng, x.bfloat16().to(WIDE))

    axes = [
        rng.choice((1, 1, 2, 3)),
        rng.choice((1, 1, 2, 2)),
        rng.choice(LENGTHS),
        rng.choice(LENGTHS),
        rng.choice((1, 3, 4, 8, 9, 16)),
        rng.choice((1, 2, 5, 8, 12)),
    ]
    if rng.random() < 0.1:
        axes[rng.randrange(6)] = 0
    batch, kv_heads, queries, keys, width, value_width = axes
    heads = rng.choice((1, 1, 2, 3)) * kv_heads
    options: dict[str, object] = {"enable_gqa": True, "tile": rng.choice(((16, 16), (16, 16), (8, 16), (5, 3)))}
    if kv_heads and rng.random() < 0.2:
        options["head_map"] = tuple(rng.randrange(kv_heads) for _ in range(heads))
    if rng.random() < 0.4:
        options |= {"is_causal": True, "causal": rng.choice(("upper_left", "lower_right"))}
    if rng.random() < 0.2:
        options["window"] = (rng.choice((None, 0, 1, 5, 20)), rng.choice((None, 0, 1, 5)))
    if rng.random() < 0.2:
        options["segments"] = (ids(rng, batch, queries), ids(rng, batch, keys))
    if rng.random() < 0.2:
        options["softcap"] = rng.choice((0.5, 2.0, 15.0))
    if rng.random() < 0.4:
        options["scale"] = rng.choice((0.0, 1.0, -0.5, 0.125, 2.0))
    spread = rng.choice((0.0, 0.5, 1.0, 1.0, 3.0))
    return ZooCall(
        query=values(batch, heads, queries, width, spread=spread),
        key=values(batch, kv_heads, keys, width),
        value=values(batch, kv_heads, keys, value_width, spread=rng.choice((1.0, 1.0, 50.0))),
        grad=values(batch, heads, queries, value_width),
        attn_mask=mask(rng, source, batch, heads, queries, keys),
        bias=values(*spread_axes(rng, (batch, heads, queries, keys))) if rng.random() < 0.25 else None,
        multiplier=dropout(rng, source, (batch, heads, queries, keys)) if rng.random() < 0.25 else None,
        options=options,
    )


def spread_axes(rng: random.Random, full: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts to full: some axes 1, leading ones of them perhaps missing."""
    shape = tuple(1 if rng.random() < 0.4 else n for n in full)
    while len(shape) > 1 and shape[0] == 1 and rng.random() < 0.5:
        shape = shape[1:]
    return shape


def mask(rng: random.Random, source: torch.Generator, batch: int, heads: int, queries: int, keys: int) -> Tensor | None:
    """No mask, a boolean one, or an additive one with illegal entries; some rows are emptied."""
    kind = rng.choice(("none", "bool", "bool", "additive"))
    if kind == "none":
        return None
    shape = spread_axes(rng, (batch, heads, queries, keys))
    allowed = torch.rand(shape, generator=source) < rng.choice((0.1, 0.5, 0.9))
    if len(shape) > 1 and shape[-2] > 1:
        allowed[..., torch.rand(shape[-2], generator=source) < 0.2, :] = False
    if rng.random() < 0.3:
        allowed[..., : min(20, shape[-1] - 1)] = False
    if kind == "bool":
        return allowed
    bias = torch.randn(shape, generator=source, dtype=WIDE).bfloat16().to(WIDE)
    return laid_out(rng, bias.masked_fill(~allowed, -torch.inf))


def dropout(rng: random.Random, source: torch.Generator, full: tuple[int, ...]) -> Tensor:
    """A realised dropout multiplier whose values every storage type holds."""
    rate = rng.choice((0.5, 0.75))
    return (torch.rand(full, generator=source) >= rate) / torch.tensor(1 - rate, dtype=WIDE)


def ids(rng: random.Random, batch: int, length: int) -> Tensor:
    """Non-decreasing segment ids of each position, one row for all or one for each batch."""
    rows = [sorted(rng.randrange(3) for _ in range(length)) for _ in range(batch)]
    table = torch.tensor(rows, dtype=torch.long).reshape(batch, length)
    return table[0] if batch and rng.random() < 0.5 else table


def laid_out(rng: random.Random, x: Tensor) -> Tensor:
    """The same numbers in another memory layout."""
    layout = rng.choice(("dense", "dense", "swapped", "sliced", "reversed"))
    if layout == "swapped" and x.dim() == 4:
        return x.transpose(1, 2).contiguous().transpose(1, 2)
    if layout == "sliced" and x.dim() >= 1:
        return torch.nn.functional.pad(x, (2, 3), value=7.0)[..., 2 : 2 + x.shape[-1]]
    if layout == "reversed" and x.dim() >= 2:
        return x.mT.contiguous().mT
    return x
