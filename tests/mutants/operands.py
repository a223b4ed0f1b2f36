"""Operands of small calls: numbers that every storage type holds, masks with an empty row, a realised multiplier."""

from __future__ import annotations

import torch
from torch import Tensor

WIDE = torch.float64


def values(seed: int, *shape: int) -> Tensor:
    """Gaussian numbers that bfloat16 holds, in float64."""
    source = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=source, dtype=WIDE).bfloat16().to(WIDE)


def random_mask(seed: int, *shape: int, density: float = 0.6) -> Tensor:
    """A boolean mask with its third row empty."""
    mask = torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) < density
    mask[..., min(2, shape[-2] - 1), :] = False
    return mask


def operands_of(
    batch: int, heads: tuple[int, int], queries: int, keys: int, width: int, value_width: int
) -> dict[str, Tensor]:
    """query, key, value, grad of a shape."""
    return {
        "query": values(1, batch, heads[0], queries, width),
        "key": values(2, batch, heads[1], keys, width),
        "value": values(3, batch, heads[1], keys, value_width),
        "grad": values(4, batch, heads[0], queries, value_width),
    }


def half_dropped(*shape: int) -> Tensor:
    """A realised dropout multiplier at rate one quarter."""
    keep = torch.rand(*shape, generator=torch.Generator().manual_seed(9)) >= 0.25
    return keep / torch.tensor(0.75, dtype=WIDE)
