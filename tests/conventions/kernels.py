"""Functions to be called: attention with every keyword, and two kernels that misread memory."""

from __future__ import annotations

from typing import Any

import torch


def modified(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    softcap: float | None = None,
    sink: Any = None,
) -> tuple[Any, Any]:
    """Attention in torch's operations, with a softcap and a sink: (output, lse)."""
    if enable_gqa:
        shared = query.shape[1] // max(key.shape[1], 1)
        key, value = key.repeat_interleave(shared, 1), value.repeat_interleave(shared, 1)
    scores = (query @ key.mT) * (max(query.shape[-1], 1) ** -0.5 if scale is None else scale)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    if sink is not None:
        scores = torch.cat([scores, sink[:, None, None].expand(*scores.shape[:3], 1)], -1)
    weights = torch.softmax(scores, -1)[..., : key.shape[2]]
    return weights @ value, torch.logsumexp(scores, -1)


def sdpa(*tensors: Any, **options: Any) -> Any:
    """torch's own function, its arguments seen through no names."""
    return torch.nn.functional.scaled_dot_product_attention(*tensors, **options)


def query(query: Any, key: Any, value: Any) -> Any:
    """A function that has the name of a variable of the program."""
    return torch.softmax(query @ key.mT, -1) @ value


def _as_if_contiguous(x: Any) -> Any:
    strides = [1]
    for n in reversed(x.shape[1:]):
        strides.insert(0, strides[0] * n)
    return torch.as_strided(x, x.shape, strides)


def misreads_mask(query: Any, key: Any, value: Any, attn_mask: Any = None) -> Any:
    """Takes a mask's memory for contiguous."""
    mask = None if attn_mask is None else _as_if_contiguous(attn_mask)
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)


def reads_past_the_end(query: Any, key: Any, value: Any) -> Any:
    """Takes the memory of values for contiguous: of padded ones it reads what lies between the rows."""
    return torch.softmax(query @ key.mT, -1) @ _as_if_contiguous(value)
