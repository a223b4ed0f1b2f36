# Broken on purpose: one line differs from tiled_attention.py. Finding it is the exercise.
"""A tiled attention with an online softmax, small enough to read in one sitting; gradients by plain autograd.

    certify run examples/broken_attention.py:attention

Same signature as torch.nn.functional.scaled_dot_product_attention. Accumulates in float32 (float64 for float64
inputs); a query that may attend no key gives 0, with zero gradients.
"""

from __future__ import annotations

import torch
from torch import Tensor

TILE = 16  # small, so that short sequences already cross tiles


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Attention of query [..., Hq, Q, D] over key [..., Hkv, K, D] and value [..., Hkv, K, Dv]: [..., Hq, Q, Dv].

    attn_mask broadcasts to [..., Hq, Q, K]: boolean (True may attend) or added to the scores (-inf hides a key).
    is_causal lets row i attend keys 0..i (upper-left) and composes with attn_mask. Raises NotImplementedError on
    dropout.
    """
    if dropout_p != 0.0:
        raise NotImplementedError(f"this kernel has no dropout: dropout_p must be 0, not {dropout_p}")
    storage = query.dtype
    wide = torch.float64 if storage == torch.float64 else torch.float32
    query, key, value = query.to(wide), key.to(wide), value.to(wide)
    if enable_gqa:
        group = query.shape[-3] // key.shape[-3] if key.shape[-3] else 1
        key, value = key.repeat_interleave(group, -3), value.repeat_interleave(group, -3)
    if scale is None:
        scale = query.shape[-1] ** -0.5 if query.shape[-1] else 1.0
    bias, visible = mask_tables(query, key, attn_mask, is_causal, wide)

    rows = query.shape[:-1]
    shift = query.new_full(rows, -torch.inf)  # running maximum of the visible scores
    mass = query.new_zeros(rows)  # sum of exp(score - shift)
    out = query.new_zeros(*rows, value.shape[-1])  # sum of exp(score - shift) * value
    for start in range(0, max(1, key.shape[-2]), TILE):  # one empty tile where there are no keys
        tile = slice(start, start + TILE)
        seen = visible[..., tile]
        scores = query @ key[..., tile, :].mT * scale
        if bias is not None:
            scores = scores + bias[..., tile]
        scores = torch.where(seen, scores, 0.0)  # finite where hidden, so that no gradient becomes NaN
        hidden = torch.where(seen, scores, -torch.inf)
        new_shift = torch.cat([shift[..., None], hidden], -1).amax(-1).detach()
        base = torch.where(new_shift == -torch.inf, 0.0, new_shift)
        rescale = torch.exp(shift - base)
        weights = torch.where(seen, torch.exp(torch.where(seen, scores - base[..., None], 0.0)), 0.0)
        mass = mass * rescale + weights.sum(-1)
        out = out + weights @ value[..., tile, :]
        shift = new_shift
    empty = mass == 0
    return torch.where(empty[..., None], 0.0, out / torch.where(empty, 1.0, mass)[..., None]).to(storage)


def mask_tables(
    query: Tensor, key: Tensor, attn_mask: Tensor | None, is_causal: bool, wide: torch.dtype
) -> tuple[Tensor | None, Tensor]:
    """The finite bias (None without one) and who may attend whom, both spread to [..., Hq, Q, K]."""
    full = (*query.shape[:-1], key.shape[-2])
    bias, visible = None, torch.ones(full, dtype=torch.bool, device=query.device)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        visible = attn_mask.expand(full)
    elif attn_mask is not None:
        visible = (attn_mask != -torch.inf).expand(full)
        bias = attn_mask.masked_fill(attn_mask == -torch.inf, 0.0).to(wide).expand(full)
    if is_causal:
        visible = visible & torch.ones(full[-2:], dtype=torch.bool, device=query.device).tril()
    return bias, visible
