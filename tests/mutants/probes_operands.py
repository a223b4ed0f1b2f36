"""Probing calls that differ in options, sizes, memory and numbers."""

from __future__ import annotations

import torch

from .calls import ZooCall
from .probing import WIDE, Probes, half_dropped, operands_of, probe, random_mask, values

OPERANDS: Probes = {}


@probe(OPERANDS)
def everything() -> ZooCall:
    """Grouped heads, causal lower-right, mask with empty rows, bias, dropout, own scale, partial tiles."""
    return ZooCall(
        **operands_of(2, (6, 2), 19, 37, 9, 11), attn_mask=random_mask(5, 2, 6, 19, 37), bias=values(6, 1, 6, 19, 37),
        multiplier=half_dropped(2, 6, 19, 37),
        options={"is_causal": True, "causal": "lower_right", "scale": 0.375, "enable_gqa": True},
    )  # fmt: skip


@probe(OPERANDS)
def plain() -> ZooCall:
    """No options at all; four key tiles, so two merged parts."""
    return ZooCall(**operands_of(2, (2, 2), 20, 50, 8, 3))


@probe(OPERANDS)
def capped() -> ZooCall:
    """Softcap with bias."""
    return ZooCall(
        **operands_of(1, (2, 2), 18, 20, 4, 4), bias=values(6, 1, 1, 18, 20), options={"softcap": 0.75, "scale": 0.75}
    )


@probe(OPERANDS)
def layouts() -> ZooCall:
    """Query stored [B,Q,H,D], key a slice of a cache, value stored transposed, mask a slice."""
    call = ZooCall(**operands_of(2, (2, 2), 18, 20, 4, 5), options={"is_causal": True})
    cache = torch.cat([values(8, 2, 2, 3, 4), call.key, values(9, 2, 2, 7, 4)], 2)
    mask = random_mask(5, 2, 1, 18, 27)[..., 3:23]
    return ZooCall(
        query=call.query.transpose(1, 2).contiguous().transpose(1, 2), key=cache[:, :, 3:23],
        value=call.value.mT.contiguous().mT, grad=call.grad, attn_mask=mask, options=call.options,
    )  # fmt: skip


@probe(OPERANDS)
def broadcast_key() -> ZooCall:
    """One key head expanded over all heads, stride 0."""
    call = ZooCall(**operands_of(1, (3, 3), 5, 17, 4, 4))
    return ZooCall(
        query=call.query, key=call.key[:, :1].expand(1, 3, 17, 4), value=call.value, grad=call.grad,
        wants=("query", "value"),
    )  # fmt: skip


@probe(OPERANDS)
def as_many_heads_as_keys() -> ZooCall:
    """Heads and keys of one count, where a swap of the two goes unnoticed by shapes."""
    return ZooCall(**operands_of(1, (4, 4), 3, 4, 4, 4))


@probe(OPERANDS)
def only_the_bias_wants_gradient() -> ZooCall:
    """Query, key and value are frozen."""
    return ZooCall(**operands_of(1, (1, 1), 5, 6, 4, 4), bias=values(6, 5, 6), wants=("bias",))


@probe(OPERANDS)
def mapped_heads() -> ZooCall:
    """An explicit head map that is not consecutive groups."""
    return ZooCall(**operands_of(1, (4, 2), 5, 6, 4, 4), options={"head_map": (1, 0, 0, 1)})


@probe(OPERANDS)
def many_heads() -> ZooCall:
    """More than eight heads over both batches."""
    return ZooCall(**operands_of(3, (4, 4), 2, 3, 2, 2))


@probe(OPERANDS)
def wide() -> ZooCall:
    """More than 64 channels."""
    return ZooCall(**operands_of(1, (1, 1), 3, 4, 67, 67))


@probe(OPERANDS)
def hot() -> ZooCall:
    """Logits of hundreds that rise from tile to tile."""
    call = ZooCall(**operands_of(1, (1, 1), 18, 40, 4, 4))
    return ZooCall(
        query=call.query * 16, key=call.key * torch.linspace(1, 16, 40, dtype=WIDE)[:, None].round(), value=call.value,
        grad=call.grad,
    )  # fmt: skip


@probe(OPERANDS)
def falling() -> ZooCall:
    """Logits that fall by more than float64's exponent range from the first tile to the next."""
    bias = torch.zeros(1, 1, 4, 34, dtype=WIDE)
    bias[..., :16] = -3000.0
    bias[..., 1, :16] = 3000.0
    return ZooCall(**operands_of(1, (1, 1), 4, 34, 4, 4), bias=bias)


@probe(OPERANDS)
def cold() -> ZooCall:
    """Every logit below -1000, so that exp(0 - LSE) overflows in any format; a partial key tile."""
    return ZooCall(**operands_of(1, (1, 1), 3, 17, 4, 4), bias=torch.full((3, 17), -1024.0, dtype=WIDE))


@probe(OPERANDS)
def freezing() -> ZooCall:
    """Every logit below a sentinel of fifty thousand, and within the range of half precision."""
    return ZooCall(**operands_of(1, (1, 1), 3, 17, 4, 4), bias=torch.full((3, 17), -57344.0, dtype=WIDE))


@probe(OPERANDS)
def negative_scale() -> ZooCall:
    """A scale below zero."""
    return ZooCall(**operands_of(1, (1, 1), 3, 5, 4, 4), options={"scale": -0.75})


@probe(OPERANDS)
def zero_scale() -> ZooCall:
    """A scale of zero: every visible key weighs the same."""
    return ZooCall(**operands_of(1, (1, 1), 3, 5, 4, 4), options={"scale": 0.0})


@probe(OPERANDS)
def no_keys() -> ZooCall:
    """Key length zero."""
    return ZooCall(**operands_of(1, (1, 1), 3, 0, 4, 4))


@probe(OPERANDS)
def no_queries() -> ZooCall:
    """Query length zero."""
    return ZooCall(**operands_of(1, (1, 1), 0, 3, 4, 4))


@probe(OPERANDS)
def no_width() -> ZooCall:
    """Head width zero: uniform weights over visible keys."""
    return ZooCall(**operands_of(1, (1, 1), 3, 5, 0, 4))


@probe(OPERANDS)
def uneven_groups() -> ZooCall:
    """Three query heads over two key heads: refused."""
    return ZooCall(**operands_of(1, (3, 2), 3, 5, 4, 4), options={"enable_gqa": True})


@probe(OPERANDS)
def long_rows() -> ZooCall:
    """Sixty-five rows and keys: sums long enough to show a narrow accumulator."""
    return ZooCall(**operands_of(1, (1, 1), 65, 65, 8, 8), options={"scale": 0.3})
