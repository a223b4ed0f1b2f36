"""Loading: heads gathered, types widened, lengths padded to whole tiles, keys nobody sees set to zero."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from .call import Call, misread, padded_length
from .numerics import tf32
from .visibility import causal_table, packed_heads_late, visible_table


@dataclass(frozen=True)
class Loaded:
    """Padded operands in the accumulator type, one key/value copy for each query head.

    query [B,Hq,Qp,D], key [B,Hq,Kp,D], value [B,Hq,Kp,Dv], visible, bias, multiplier [B,Hq,Qp,Kp].
    """

    query: Tensor
    key: Tensor
    value: Tensor
    visible: Tensor
    bias: Tensor | None
    multiplier: Tensor | None


def pad_rows(x: Tensor, tile: int, fill: float = 0.0) -> Tensor:
    """x [..., n, m] with n filled up to whole tiles."""
    return pad(x, (0, 0, 0, padded_length(x.shape[-2], tile) - x.shape[-2]), value=fill)


def load_query(call: Call, query: Tensor) -> Tensor:
    """The query rows, [B,Hq,Qp,D]."""
    bugs = call.bugs
    if "query_strides_ignored" in bugs:
        query = misread(query)
    query = query.to(call.numerics.accumulator)
    if "query_and_key_read_as_tf32" in bugs:
        query = tf32(query)
    if "query_scaled_in_storage" in bugs:
        query = (query * call.scale).to(call.numerics.storage).to(query.dtype)
    return pad_rows(query, call.tile[0])


def load_key(call: Call, key: Tensor, phase: str) -> Tensor:
    """The keys each query head reads, [B,Hq,Kp,D]."""
    bugs, shape = call.bugs, call.shape
    if "key_strides_ignored" in bugs:
        key = misread(key)
    spread = any(s == 0 < n - 1 for s, n in zip(key.stride(), key.shape, strict=True))
    if "broadcast_key_read_as_dense" in bugs and spread:
        key = misread(key)
    if "key_heads_and_length_swapped" in bugs and shape.kv_heads == shape.keys:
        key = key.transpose(1, 2)
    key = key[:, list(call.head_map)].to(call.numerics.accumulator)
    if "query_and_key_read_as_tf32" in bugs:
        key = tf32(key)
    if "keys_past_the_end_attended" in bugs and shape.keys:
        more = padded_length(shape.keys, call.tile[1]) - shape.keys
        return torch.cat([key, key[:, :, torch.arange(more) % shape.keys]], 2)
    nan_pad = "backward_pad_keys_hold_nan" in bugs and phase == "backward"
    return pad_rows(key, call.tile[1], float("nan") if nan_pad else 0.0)


def load_value(call: Call, value: Tensor) -> Tensor:
    """The values each query head reads, [B,Hq,Kp,Dv]."""
    bugs, shape, cols = call.bugs, call.shape, call.tile[1]
    if "value_strides_ignored" in bugs:
        value = misread(value)
    heads = list(call.head_map)
    if "value_heads_tiled_in_place_of_repeated" in bugs:
        heads = [h % shape.kv_heads for h in range(shape.query_heads)]
    value = value[:, heads].to(call.numerics.accumulator)
    if "values_of_the_first_batch_used_for_all" in bugs:
        value = value[:1].expand_as(value)
    if "first_two_value_pages_swapped" in bugs and shape.keys >= 2 * cols:
        value = torch.cat([value[:, :, cols : 2 * cols], value[:, :, :cols], value[:, :, 2 * cols :]], 2)
    if "keys_past_the_end_attended" in bugs and shape.keys:
        more = padded_length(shape.keys, cols) - shape.keys
        return torch.cat([value, value[:, :, torch.arange(more) % shape.keys]], 2)
    return pad_rows(value, cols, float("nan") if "pad_values_hold_nan" in bugs else 0.0)


def load_bias(call: Call, bias: Tensor) -> Tensor:
    """The finite bias, padded, [B,Hq,Qp,Kp]; illegal (-inf) entries become 0, the visible table holds them."""
    bugs, shape, cols = call.bugs, call.shape, call.tile[1]
    rows = torch.arange(shape.queries)
    if "bias_of_the_first_batch_used_for_all" in bugs:
        bias = bias[:1].expand_as(bias)
    if "bias_of_the_first_head_used_for_all" in bugs:
        bias = bias[:, :1].expand_as(bias)
    if "bias_head_counted_from_the_slice" in bugs:
        bias = bias.roll(1, 1)
    if "bias_head_taken_from_the_kv_head" in bugs:
        bias = bias[:, list(call.head_map)]
    if "bias_head_read_once_a_packed_tile" in bugs:
        head = torch.arange(shape.query_heads)[:, None] - packed_heads_late(call)
        bias = bias[:, head, rows[None, :]]
    if "bias_row_shifted_on_rectangles" in bugs and shape.queries:
        bias = bias[:, :, (rows + shape.keys - shape.queries).clamp(0, shape.queries - 1)]
    if "bias_ignored" in bugs:
        bias = torch.zeros_like(bias)
    if "bias_dropped_in_the_last_key_tile" in bugs:
        bias = bias * (torch.arange(shape.keys) // cols < (shape.keys - 1) // cols)
    bias = bias.masked_fill(bias == -torch.inf, 0.0)
    if "causal_hidden_by_adding_a_finite_minimum" in bugs and call.is_causal:
        low = torch.finfo(call.numerics.storage).min
        bias = torch.where(causal_table(call, "forward"), bias, bias + low)
    return pad_table(call, bias)


def load_multiplier(call: Call, multiplier: Tensor, phase: str) -> Tensor:
    """The realised dropout multiplier (0, or 1 over the keep rate), padded, [B,Hq,Qp,Kp]."""
    bugs, shape, cols = call.bugs, call.shape, call.tile[1]
    full = (shape.batch, shape.query_heads, shape.queries, shape.keys)
    table = multiplier.to(call.numerics.accumulator).expand(full)
    if "dropout_ignored" in bugs:
        table = torch.ones_like(table)
    if "dropout_survivors_not_rescaled" in bugs:
        table = (table != 0).to(table.dtype)
    if "dropout_of_the_first_head_used_for_all" in bugs:
        table = table[:, :1].expand_as(table)
    if "dropout_restarts_at_every_key_tile" in bugs:
        table = table[..., torch.arange(shape.keys) % cols]
    if phase == "backward":
        if "backward_draws_another_dropout" in bugs:
            table = table.roll(1, -1)
        if "backward_dropout_scaled_by_the_drop_rate" in bugs and table.numel():
            table = table * (1.0 - 1.0 / table.max().clamp(min=1.0))
    return pad_table(call, table)


def pad_table(call: Call, table: Tensor) -> Tensor:
    """A [B,Hq,Q,K] table filled up with zeros to whole tiles."""
    (rows, cols), (queries, keys) = call.tile, table.shape[-2:]
    return pad(table, (0, padded_length(keys, cols) - keys, 0, padded_length(queries, rows) - queries))


def bias_needed(call: Call, bias: Tensor | None) -> Tensor | None:
    """The additive mask spread to [B,Hq,Q,K] in the accumulator type, or None where the call has none."""
    bugs, shape = call.bugs, call.shape
    full = (shape.batch, shape.query_heads, shape.queries, shape.keys)
    if bias is None:
        if "causal_hidden_by_adding_a_finite_minimum" in bugs and call.is_causal:
            return torch.zeros(full, dtype=call.numerics.accumulator)
        return None
    if "additive_mask_ignored" in bugs:
        bias = torch.zeros_like(bias)
    if "float_mask_bits_read_as_half" in bugs and bias.dtype == torch.float32 and bias.shape[-1:] != (1,):
        bias = bias.contiguous().view(torch.float16)[..., : bias.shape[-1]]
    return bias.to(call.numerics.accumulator).expand(full)


def load(call: Call, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, phase: str) -> Loaded:
    """Everything the tiles read. Keys that no query of a head may attend are zeroed, so that NaN there is inert.

    A key hidden from some rows only still reaches them as 0·value: that contract is like torch's.
    """
    bugs, cached = call.bugs, key.numel() * key.element_size() < key.untyped_storage().nbytes()
    table = bias_needed(call, bias)
    visible = visible_table(call, table, phase, cached)
    hidden = ~visible.any(-2)[..., None]
    key_tiles, value_tiles = load_key(call, key, phase), load_value(call, value)
    real = torch.arange(visible.shape[-1])[:, None] < call.shape.keys
    if "hidden_keys_not_zeroed" not in bugs:
        key_tiles = key_tiles.masked_fill(hidden & real, 0.0)
    if "hidden_values_not_zeroed" not in bugs:
        value_tiles = value_tiles.masked_fill(hidden & real, 0.0)
    return Loaded(
        load_query(call, query),
        key_tiles,
        value_tiles,
        visible,
        None if table is None else load_bias(call, table),
        None if call.multiplier is None else load_multiplier(call, call.multiplier, phase),
    )
