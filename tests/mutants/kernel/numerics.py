"""What the zoo kernel rounds, and where: one declared record for each storage type."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

STORAGE_TYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Numerics:
    """The declared arithmetic of one call.

    storage: inputs, outputs and gradients are stored so.
    accumulator: scores, softmax, row mass, output and gradient accumulators, LSE.
    probabilities: the unnormalised P times the dropout multiplier entering P·V, and P·Z entering (P·Z)ᵀ·G.
    score_gradient: dS entering dS·K and dSᵀ·Q; the bias gradient uses the uncast dS.
    The row term D is the row sum of G times the *rounded* output. Gradients are rounded once, at the end.
    """

    storage: torch.dtype
    accumulator: torch.dtype
    probabilities: torch.dtype
    score_gradient: torch.dtype


def numerics_of(storage: torch.dtype) -> Numerics:
    """The record of a storage type; low formats accumulate in float32. Raises TypeError on any other type."""
    if storage not in STORAGE_TYPES:
        raise TypeError(f"the zoo kernel stores float64, float32, bfloat16 or float16, not {storage}")
    accumulator = torch.float64 if storage == torch.float64 else torch.float32
    return Numerics(storage, accumulator, storage, storage)


def rounded(x: Tensor, to: torch.dtype) -> Tensor:
    """x rounded to a format and held in its own type again; no operation where the formats are one."""
    return x if x.dtype == to else x.to(to).to(x.dtype)


def tf32(x: Tensor) -> Tensor:
    """x truncated to ten mantissa bits, as tensor cores read float32 inputs by default."""
    bits = x.to(torch.float32).view(torch.int32)
    return (bits & ~0x1FFF).view(torch.float32).to(x.dtype)
