"""Attention as somebody's own function in plain torch, with the signature of torch's functional attention."""

import torch


def attention(
    query,
    key,
    value,
    attn_mask=None,
    is_causal=False,
    scale=None,
    enable_gqa=False,
    softcap=None,
    sink=None,
    alibi_slopes=None,
):
    """softmax(cap(scale · Q Kᵀ) - slopes · distance + bias, over visible keys and the sink) V, and the log-sum-exp."""
    if not query.dtype == key.dtype == value.dtype:
        raise TypeError(f"query, key and value differ in type: {query.dtype}, {key.dtype}, {value.dtype}")
    wide = torch.promote_types(query.dtype, torch.float32)
    q, k, v = query.to(wide), key.to(wide), value.to(wide)
    if enable_gqa:
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    queries, keys, width = q.shape[2], k.shape[2], q.shape[3]
    visible = torch.ones(*q.shape[:2], queries, keys, dtype=torch.bool, device=q.device)
    if is_causal:
        visible = visible.tril()
    bias = None
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        visible = visible & attn_mask
    elif attn_mask is not None:
        visible, bias = visible & (attn_mask != -torch.inf), attn_mask.to(wide)
    # What no row sees must not reach a product: NaN there times a weight of zero would be NaN.
    unseen = ~visible.any(dim=2)[..., None]
    k, v = k.masked_fill(unseen, 0.0), v.masked_fill(unseen, 0.0)
    multiplier = scale if scale is not None else width**-0.5 if width else 1.0
    scores = (q @ k.mT) * multiplier
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if alibi_slopes is not None:
        distance = (torch.arange(queries)[:, None] + (keys - queries) - torch.arange(keys)).abs()
        scores = scores - alibi_slopes.to(wide)[:, None, None] * distance
    if bias is not None:
        scores = scores + bias
    scores = scores.masked_fill(~visible, -torch.inf)
    if sink is not None:
        column = sink.to(wide)[None, :, None, None].expand(*scores.shape[:3], 1)
        scores = torch.cat([scores, column], dim=-1)
    # Rows without a key: softmax over nothing but -inf would be NaN, and so would its gradient.
    dead = torch.isneginf(scores).all(dim=-1, keepdim=True)
    shown = scores.masked_fill(dead, 0.0)
    weights = torch.softmax(shown, dim=-1).masked_fill(dead, 0.0)
    lse = torch.logsumexp(scores, dim=-1)
    output = weights[..., :keys] @ v
    return output.to(query.dtype), lse
