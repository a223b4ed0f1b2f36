"""What the probing calls are made of: operands, masks and multipliers, the same on every machine."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .calls import ZooCall

WIDE = torch.float64
Probes = dict[str, Callable[[], ZooCall]]


def probe(listed: Probes) -> Callable[[Callable[[], ZooCall]], Callable[[], ZooCall]]:
    """Lists a call under its function's name."""

    def add(make: Callable[[], ZooCall]) -> Callable[[], ZooCall]:
        listed[make.__name__] = make
        return make

    return add


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
