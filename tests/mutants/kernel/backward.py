"""The backward pass: weights recomputed from the saved LSE, D from the rounded output."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .call import Call
from .load import Loaded, pad_rows
from .numerics import rounded
from .online import INF
from .scores import hide, key_tiles, query_tiles, tile_scores


@dataclass(frozen=True)
class Gradients:
    """Accumulators over tiles, for each query head: query [B,Hq,Qp,D], key [B,Hq,Kp,D], value [B,Hq,Kp,Dv], bias."""

    query: Tensor
    key: Tensor
    value: Tensor
    bias: Tensor | None


def row_delta(call: Call, grad: Tensor, out: Tensor) -> Tensor:
    """D = Σ_c G·O of every row, [B,Hq,Q]; equal to ⟨P, Z ⊙ (G Vᵀ)⟩."""
    bugs = call.bugs
    delta = (grad * out).sum(-1)
    if "delta_omitted" in bugs:
        delta = torch.zeros_like(delta)
    if "delta_rounded_to_storage" in bugs:
        delta = rounded(delta, call.numerics.storage)
    if "delta_of_the_first_batch_used_for_all" in bugs:
        delta = delta[:1].expand_as(delta)
    if "delta_of_the_first_head_used_for_all" in bugs:
        delta = delta[:, :1].expand_as(delta)
    return delta


def guarded_lse(call: Call, lse: Tensor) -> Tensor:
    """The LSE to subtract: 0 for empty rows, so that exp(-inf - 0) = 0; padded rows are empty too."""
    bugs = call.bugs
    if "backward_lse_of_the_first_batch_used_for_all" in bugs:
        lse = lse[:1].expand_as(lse)
    fill = torch.nan if "query_pad_rows_hold_nan_in_backward" in bugs else -INF
    lse = torch.nn.functional.pad(lse, (0, -lse.shape[-1] % call.tile[0]), value=fill)
    if "backward_empty_rows_unguarded" in bugs:
        real = torch.arange(lse.shape[-1]) < call.shape.queries
        return torch.where(real, lse, lse.masked_fill(lse == -INF, 0.0))
    return lse.masked_fill(lse == -INF, 0.0)


def tile_weights(call: Call, hidden: Tensor, lse: Tensor) -> Tensor:
    """P of one tile, recomputed: exp(s - LSE), 0 where hidden."""
    if "backward_divides_exponentials" in call.bugs:
        return torch.exp(hidden) / torch.exp(lse)[..., None]
    return torch.exp(hidden - lse[..., None])


def score_gradient(
    call: Call, weights: Tensor, multiplier: Tensor | None, grad_weights: Tensor, delta: Tensor
) -> Tensor:
    """Gs = P ⊙ (Z ⊙ Gp - D) of one tile; grad_weights is G Vᵀ."""
    bugs = call.bugs
    if "probability_gradient_rounded_to_storage" in bugs:
        grad_weights = rounded(grad_weights, call.numerics.storage)
    if multiplier is not None and "probability_gradient_not_dropped" not in bugs:
        grad_weights = grad_weights * multiplier
    if "score_gradient_uses_dropped_weights" in bugs and multiplier is not None:
        weights = weights * multiplier
    delta = -delta if "delta_added_in_place_of_subtracted" in bugs else delta
    # G Vᵀ may overflow where nothing is attended, and 0·inf must not become NaN
    return torch.where(weights == 0.0, 0.0, weights * (grad_weights - delta[..., None]))


def backward_tile(
    call: Call, data: Loaded, grad: Tensor, lse: Tensor, delta: Tensor, into: Gradients, rows: slice, cols: slice
) -> None:
    """Adds one tile's contributions to the accumulators."""
    bugs, numerics = call.bugs, call.numerics
    scores, slope = tile_scores(call, data, rows, cols)
    weights = tile_weights(call, hide(call, data, scores, rows, cols), lse[:, :, rows])
    multiplier = None if data.multiplier is None else data.multiplier[:, :, rows, cols]
    query, key, value, g = data.query[:, :, rows], data.key[:, :, cols], data.value[:, :, cols], grad[:, :, rows]
    ds = score_gradient(call, weights, multiplier, g @ value.mT, delta[:, :, rows])
    if into.bias is not None:
        into.bias[:, :, rows, cols] += ds
    if slope is not None and "backward_forgets_the_softcap" not in bugs:
        ds = ds * slope
    ds = rounded(ds, numerics.score_gradient)
    scale = call.scale
    if "query_scaled_in_storage" in bugs:
        query = query / scale if scale else query
    query_scale = 1.0 if "scale_missing_from_the_query_gradient" in bugs else scale
    key_scale = 1.0 if "scale_missing_from_the_key_gradient" in bugs else scale
    if "query_gradient_uses_the_default_scale" in bugs:
        query_scale = call.shape.width**-0.5 if call.shape.width else 1.0
    dropped = multiplier is None or "value_gradient_not_dropped" in bugs
    consumed = rounded(weights if dropped else weights * multiplier, numerics.probabilities)
    add(call, into.query, rows, query_scale * (ds @ key), "query")
    add(call, into.key, cols, key_scale * (ds.mT @ query), "key")
    add(call, into.value, cols, consumed.mT @ g, "value")


def add(call: Call, into: Tensor, place: slice, term: Tensor, name: str) -> None:
    """into[place] += term, in the accumulator type; planted bugs overwrite or round the running sum."""
    if f"{name}_gradient_keeps_only_the_last_tile" in call.bugs:
        into[:, :, place] = term
    else:
        into[:, :, place] += term
    if f"{name}_gradient_accumulated_in_storage" in call.bugs:
        into[:, :, place] = rounded(into[:, :, place], call.numerics.storage)


def backward(call: Call, data: Loaded, out: Tensor, lse: Tensor, grad: Tensor, bias_wanted: bool) -> Gradients:
    """Gradients for each query head, padded, in the accumulator type; grad and out are [B,Hq,Q,Dv]."""
    bugs, wide = call.bugs, call.numerics.accumulator
    grad = grad.to(wide)
    delta = torch.nn.functional.pad(row_delta(call, grad, out.to(wide)), (0, -out.shape[2] % call.tile[0]))
    grad, lse = pad_rows(grad, call.tile[0]), guarded_lse(call, lse)
    bias = torch.zeros_like(data.visible, dtype=wide) if bias_wanted else None
    into = Gradients(*(torch.zeros_like(x) for x in (data.query, data.key, data.value)), bias)
    for rows in query_tiles(call):
        tiles = key_tiles(call, rows)
        if "query_gradient_lacks_the_last_key_tile" in bugs and len(tiles) > 1:
            tiles = tiles[:-1]
        for cols in tiles:
            backward_tile(call, data, grad, lse, delta, into, rows, cols)
    return into


def per_kv_head(call: Call, grads: Tensor) -> Tensor:
    """Gradients of shared keys or values: the sum over the query heads that read each, [B,Hkv,...]."""
    bugs, shape = call.bugs, call.shape
    heads = torch.tensor(call.head_map, dtype=torch.long)
    if "group_gradient_summed_over_strided_heads" in bugs and shape.kv_heads:
        heads = torch.arange(shape.query_heads) % shape.kv_heads
    total = grads.new_zeros(shape.batch, shape.kv_heads, *grads.shape[2:])
    if "group_gradient_keeps_only_the_last_head" in bugs:
        for head, kv_head in enumerate(heads.tolist()):
            total[:, kv_head] = grads[:, head]
        return total
    total.index_add_(1, heads, grads)
    if "group_gradient_averaged" in bugs:
        total = total / torch.bincount(heads, minlength=shape.kv_heads).clamp(min=1)[:, None, None]
    return total


def bias_gradient(call: Call, ds: Tensor, like: Tensor) -> Tensor:
    """Gs [B,Hq,Qp,Kp] summed to the shape of the additive mask and cast to its type."""
    bugs, shape = call.bugs, call.shape
    ds = ds[:, :, : shape.queries, : shape.keys]
    if "bias_gradient_zero" in bugs:
        ds = torch.zeros_like(ds)
    if "bias_gradient_scaled" in bugs:
        ds = ds * call.scale
    if "bias_gradient_missing_in_the_partial_key_tile" in bugs:
        ds = ds * (torch.arange(shape.keys) < shape.keys // call.tile[1] * call.tile[1])
    if "bias_gradient_of_the_first_batch_only" in bugs and like.dim() == 4 and like.shape[0] == 1:
        ds = ds[:1]
    if "bias_gradient_of_the_last_head_only" in bugs and (like.dim() < 3 or like.shape[-3] == 1):
        ds = ds[:, -1:]
    return ds.sum_to_size(like.shape).to(like.dtype)


def finished(call: Call, into: Gradients, query: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value gradients cut to length, summed over groups, in storage."""
    bugs, shape, storage = call.bugs, call.shape, call.numerics.storage
    gq = into.query[:, :, : shape.queries]
    gk, gv = (per_kv_head(call, g[:, :, : shape.keys]) for g in (into.key, into.value))
    if "query_gradient_doubled" in bugs:
        gq = 2 * gq
    if "key_gradient_negated" in bugs:
        gk = -gk
    if "last_key_row_missing_from_the_key_gradient" in bugs and shape.keys:
        gk = torch.cat([gk[:, :, :-1], torch.zeros_like(gk[:, :, -1:])], 2)
    if "no_queries_leave_gradients_unwritten" in bugs and shape.queries == 0:
        gk, gv = torch.full_like(gk, torch.nan), torch.full_like(gv, torch.nan)
    if "key_gradient_written_with_query_strides" in bugs and not query.is_contiguous():
        order = sorted(range(4), key=lambda d: -query.stride(d))
        gk = gk.permute(order).reshape(gk.shape)
    return gq.to(storage), gk.to(storage), gv.to(storage)


__all__ = ["Gradients", "backward", "bias_gradient", "finished"]
