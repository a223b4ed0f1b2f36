"""The public entry: torch's functional attention signature, with keyword extras, over the tiled kernel."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .backward import backward, bias_gradient, finished
from .call import Call, Segments, Window, resolve
from .forward import forward, returned_lse, saved_lse
from .load import load


class TiledAttention(torch.autograd.Function):
    """apply(query, key, value, bias or None, call) -> output [B,Hq,Q,Dv], LSE [B,Hq,Q] (not differentiable)."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, call: Call) -> Any:
        """Runs the tiles and keeps inputs, rounded output and LSE."""
        out, lse = forward(call, load(call, query, key, value, bias, "forward"))
        kept = saved_lse(call, lse)
        if "lse_not_saved_when_only_the_bias_needs_gradient" in call.bugs and not any(ctx.needs_input_grad[:3]):
            kept = torch.zeros_like(kept)
        ctx.call = call
        ctx.save_for_backward(query, key, value, bias, out, kept)
        shown = returned_lse(call, lse)
        ctx.mark_non_differentiable(shown)
        return out, shown

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _lse: Tensor) -> Any:
        """Recomputes the tiles from LSE."""
        query, key, value, bias, out, lse = ctx.saved_tensors
        call = ctx.call
        into = backward(call, load(call, query, key, value, bias, "backward"), out, lse, grad, ctx.needs_input_grad[3])
        if "output_gradient_overwritten" in call.bugs:
            grad.data.mul_(out)
        gq, gk, gv = finished(call, into, query)
        gb = bias_gradient(call, into.bias, bias) if into.bias is not None else None
        return gq, gk, gv, gb, None


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    bias: Tensor | None = None,
    multiplier: Tensor | None = None,
    causal: str = "upper_left",
    window: Window | None = None,
    segments: Segments | None = None,
    softcap: float | None = None,
    head_map: tuple[int, ...] | None = None,
    return_lse: bool = False,
    tile: tuple[int, int] = (16, 16),
    bugs: frozenset[str] = frozenset(),
) -> Tensor | tuple[Tensor, Tensor]:
    """softmax(cap(scale · Q Kᵀ) + bias, over visible keys) ⊙ Z times V, tile by tile, with gradients.

    query [B,Hq,Q,D], key [B,Hkv,K,D], value [B,Hkv,K,Dv]; leading axes may be missing. attn_mask, broadcastable
    to [B,Hq,Q,K]: bool, True may attend, or an additive bias whose -inf entries are illegal edges. bias is a
    second additive term. An edge is visible when mask, causal, window and segments all allow it; window counts
    keys left and right of the row's diagonal, which `causal` aligns. A row without visible keys gives output 0,
    LSE -inf, gradient 0. multiplier is the realised dropout [B,Hq,Q,K]; dropout_p alone draws nothing.
    No input is written. Raises ValueError, TypeError, NotImplementedError on calls outside this.
    """
    if dropout_p != 0.0 and multiplier is None:
        raise NotImplementedError("this kernel applies a given dropout: pass the realised multiplier")
    rank = query.dim()
    query, key, value = (x[(None,) * (4 - rank)] for x in (query, key, value))
    mask = attn_mask if attn_mask is not None and attn_mask.dtype == torch.bool else None
    additive = attn_mask if mask is None else None
    call = resolve(
        query, key, value, mask=mask, is_causal=is_causal, alignment=causal, scale=scale, enable_gqa=enable_gqa,
        window=window, segments=segments, softcap=softcap, head_map=head_map,
        multiplier=dropped_anyway(query, key, multiplier, bugs), tile=tile, bugs=bugs,
    )  # fmt: skip
    wide = call.numerics.accumulator
    if additive is not None and bias is not None:
        additive = additive.to(wide) + bias.to(wide)
    elif additive is None:
        additive = bias
    query, key, value, mask = overwritten(query, key, value, mask, call)
    out, lse = TiledAttention.apply(query, key, value, additive, call)
    if "output_keeps_the_accumulator_type" in bugs:
        out = out.to(torch.float64)
    if "output_cut_after_the_last_row_with_a_key" in bugs:
        alive = (lse > -torch.inf).any(0).any(0).nonzero()
        out = out[:, :, : int(alive.max()) + 1 if alive.numel() else 0]
    lead = (0,) * (4 - rank)
    return (out[lead], lse[lead]) if return_lse else out[lead]


def dropped_anyway(query: Tensor, key: Tensor, multiplier: Tensor | None, bugs: frozenset[str]) -> Tensor | None:
    """The multiplier as given; a planted bug drops weights although dropout is off."""
    if multiplier is None and "dropout_active_although_off" in bugs:
        keep = torch.arange(key.shape[-2]) % 10 != 3
        return (keep / 0.9).to(query.dtype).expand(*query.shape[:-1], key.shape[-2])
    return multiplier


def overwritten(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, call: Call
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """The operands as given; planted bugs spoil the caller's memory while computing the right numbers."""
    bugs, kept = call.bugs, (query, key, value, mask)
    if "query_scaled_in_place" in bugs:
        kept = (query.clone(), key, value, mask)
        query.data.mul_(call.scale)
    if "hidden_keys_zeroed_in_place" in bugs and mask is not None:
        kept = (query, key.clone(), value, mask)
        dead = ~mask.expand(call.shape.batch, call.shape.query_heads, call.shape.queries, -1).any(2).any(1)
        key.data.masked_fill_(dead[:, None, :, None], 0.0)
    if "value_overwritten_with_zeros" in bugs:
        kept = (query, key, value.clone(), mask)
        value.data.zero_()
    if "mask_overwritten_with_causal" in bugs and mask is not None and call.is_causal:
        kept = (query, key, value, mask.clone())
        mask.data.zero_()
    if "multiplier_overwritten" in bugs and call.multiplier is not None:
        object.__setattr__(call, "multiplier", (given := call.multiplier).clone())
        given.data.zero_()
    if "write_past_the_end_of_a_key_view" in bugs and key.numel():
        stored = key.untyped_storage().nbytes() // key.element_size()
        flat = torch.as_strided(key.data, (stored,), (1,), 0)
        end = key.storage_offset() + sum((n - 1) * s for n, s in zip(key.shape, key.stride(), strict=True)) + 1
        if end < stored:
            flat[end] = 0.0
    return kept


__all__ = ["Segments", "attention"]
