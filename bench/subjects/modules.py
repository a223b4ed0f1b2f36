"""torch.nn.MultiheadAttention with projections that change nothing, as attention subjects.

certify run bench/subjects/modules.py:NAME --only PROPERTY
"""

from __future__ import annotations

import torch
from torch import Tensor

from attnspec.certify.claims import Capabilities
from attnspec.pyspec.calls.formats import FORMATS
from attnspec.pyspec.oracle.ledger import every_operation_stored

CLAIMS = Capabilities(
    dtypes=tuple(FORMATS), value_width_differs=False, grouped_heads=False, any_scale=False,
    encodings=("none", "bool", "additive"), zero_sizes=False,
)  # fmt: skip


def module(heads: int, width: int, dtype: torch.dtype) -> torch.nn.MultiheadAttention:
    """Attention of heads × width with identity projections and no bias."""
    embed = heads * width
    made = torch.nn.MultiheadAttention(embed, heads, batch_first=True, bias=False, dtype=dtype)
    with torch.no_grad():
        made.in_proj_weight.copy_(torch.eye(embed).repeat(3, 1))
        made.out_proj.weight.copy_(torch.eye(embed))
    return made


def joined(x: Tensor) -> Tensor:
    """[B,H,S,D] as [B,S,H·D]."""
    return x.transpose(1, 2).flatten(2)


def parted(x: Tensor, heads: int) -> Tensor:
    """[B,S,H·D] as [B,H,S,D]."""
    return x.unflatten(2, (heads, -1)).transpose(1, 2)


def dropped(mask: Tensor | None, shape: tuple[int, int, int, int]) -> Tensor | None:
    """attn_mask in the module's words: [B·H,Q,K], True (or -inf) where a key may not be attended."""
    if mask is None:
        return None
    mask = ~mask if mask.dtype == torch.bool else mask
    return mask.expand(shape).flatten(0, 1)


def attend(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, need_weights: bool) -> Tensor:
    """One forward pass of the module."""
    batch, heads, queries, width = query.shape
    mask = dropped(attn_mask, (batch, heads, queries, key.shape[2]))
    made = module(heads, width, query.dtype)
    out, _ = made(joined(query), joined(key), joined(value), attn_mask=mask, need_weights=need_weights)
    return parted(out, heads)


def mha_with_weights(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None) -> Tensor:
    """need_weights=True: the module's own softmax."""
    return attend(query, key, value, attn_mask, True)


def mha(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None) -> Tensor:
    """need_weights=False: scaled_dot_product_attention inside."""
    return attend(query, key, value, attn_mask, False)


def mha_fast_path(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None) -> Tensor:
    """Evaluation without gradients: the fused fast path, which wants self-attention and an even number of heads.

    Each head's features are [query, key, value, 0], of which the projections pick one; the query is doubled because
    the head is four times as wide. The shorter side is filled up with keys that nobody sees, or rows that are cut,
    an odd number of heads with one that is cut.
    """
    batch, heads, queries, width = query.shape
    keys, even = key.shape[2], heads + heads % 2
    length = max(queries, keys)

    def filled(x: Tensor) -> Tensor:
        return torch.nn.functional.pad(x, (0, 0, 0, length - x.shape[2], 0, even - heads))

    mask = torch.ones(batch, even, length, length, dtype=torch.bool)
    mask[:, :heads, :queries, :keys] = False if attn_mask is None else ~attn_mask
    mask[:, :, queries:, 0] = False
    mask[:, heads:, :, 0] = False
    parts = [filled(x) for x in (query, key, value)]
    x = joined(torch.cat([*parts, torch.zeros_like(parts[0])], -1))
    embed = even * 4 * width
    made = torch.nn.MultiheadAttention(embed, even, batch_first=True, dtype=query.dtype).eval()
    with torch.no_grad():
        for part, size in enumerate((2.0, 1.0, 1.0)):
            weight = made.in_proj_weight[part * embed : (part + 1) * embed].zero_()
            for head in range(even):
                at = head * 4 * width
                weight[at : at + width, at + part * width : at + (part + 1) * width] = size * torch.eye(width)
        made.in_proj_bias.zero_()
        made.out_proj.weight.copy_(torch.eye(embed))
        made.out_proj.bias.zero_()
        out, _ = made(x, x, x, attn_mask=mask.flatten(0, 1), need_weights=False)
    return parted(out, even)[:, :heads, :queries, :width]


for function in (mha, mha_with_weights, mha_fast_path):
    function.attnspec_capabilities = CLAIMS  # type: ignore[attr-defined]
    function.attnspec_ledger = every_operation_stored  # type: ignore[attr-defined]
mha_fast_path.attnspec_capabilities = Capabilities(  # type: ignore[attr-defined]
    **{**vars(CLAIMS), "gradients": False, "bias": False, "bias_gradient": False, "encodings": ("none", "bool")}
)
