"""Which query may attend which key: mask, causal, window and segments, as one table of a call."""

from __future__ import annotations

import torch
from torch import Tensor

from .call import Call, misread, padded_length

INF = float("inf")


def diagonal_offset(call: Call, phase: str) -> int:
    """The key position of query row zero: 0 for upper-left alignment, keys - queries for lower-right."""
    shape, bugs = call.shape, call.bugs
    lower_right = call.alignment == "lower_right"
    if "causal_alignment_swapped" in bugs:
        lower_right = not lower_right
    if "backward_causal_alignment_swapped" in bugs and phase == "backward":
        lower_right = not lower_right
    keys = shape.keys
    if "causal_offset_taken_from_padded_keys" in bugs:
        keys = padded_length(keys, call.tile[1])
    return keys - shape.queries if lower_right else 0


def row_positions(call: Call, phase: str) -> Tensor:
    """The diagonal of every query row on the key axis, [Hq or 1, Q, 1]."""
    shape, bugs, rows = call.shape, call.bugs, call.tile[0]
    row = torch.arange(shape.queries)
    if "first_row_of_a_tile_bounds_all_its_rows" in bugs:
        row = row // rows * rows
    if "last_row_of_a_tile_bounds_all_its_rows" in bugs:
        row = row // rows * rows + rows - 1
    row = row[None, :, None]
    if "row_position_read_from_the_packed_group" in bugs:
        row = row + packed_heads_late(call)[:, :, None] * shape.queries
    return row + diagonal_offset(call, phase)


def packed_heads_late(call: Call) -> Tensor:
    """How many heads after the first head of its tile a row lies, where a group's heads share query tiles.

    [Hq, Q], zero unless a tile of the packed rows (head in group, row) straddles two heads.
    """
    shape, rows = call.shape, call.tile[0]
    group = max(1, shape.query_heads // max(1, shape.kv_heads))
    head = torch.arange(shape.query_heads)[:, None] % group
    packed = head * shape.queries + torch.arange(shape.queries)[None, :]
    return head - packed // rows * rows // max(1, shape.queries)


def causal_table(call: Call, phase: str) -> Tensor:
    """True where the key does not lie after the row's diagonal, [Hq or 1, Q, K]."""
    shape, bugs, (rows, cols) = call.shape, call.bugs, call.tile
    key, position = torch.arange(shape.keys)[None, None, :], row_positions(call, phase)
    row = torch.arange(shape.queries)[None, :, None]
    if "key_index_kept_in_eight_bits" in bugs:
        key = (key + 128) % 256 - 128
    if "causal_sees_one_future_key" in bugs:
        position = position + 1
    if "causal_hides_the_diagonal" in bugs:
        position = position - 1
    if "late_rows_see_one_future_key" in bugs:
        position = position + (row >= 128).long()
    if "late_rows_lose_their_own_key" in bugs:
        position = position - (row >= 128).long()
    table = key <= position
    if "causal_mask_only_on_the_diagonal_tile" in bugs:
        table = table | (key // cols != row // rows)
    if "single_query_skips_causal" in bugs and shape.queries == 1:
        table = torch.ones_like(table)
    return table


def causal_applies(call: Call, cached: bool) -> bool:
    """Whether the call is causal; the planted bugs forget it beside another feature."""
    bugs = call.bugs
    if "causal_dropped_beside_dropout" in bugs and call.multiplier is not None:
        return False
    if "causal_dropped_beside_a_mask" in bugs and call.mask is not None:
        return False
    if "causal_dropped_for_cached_keys" in bugs and cached:
        return False
    return call.is_causal


def window_table(call: Call, phase: str) -> Tensor:
    """True where diagonal - left <= key <= diagonal + right, either side open where None, [Hq or 1, Q, K]."""
    bugs, (left, right) = call.bugs, call.window or (None, None)
    key, position = torch.arange(call.shape.keys)[None, None, :], row_positions(call, phase)
    if "window_anchored_at_the_upper_left" in bugs:
        position = torch.arange(call.shape.queries)[None, :, None]
    if "window_of_zero_taken_as_open" in bugs:
        left, right = left or None, right or None
    if "window_counts_one_key_too_many" in bugs and left is not None:
        left = left + 1
    if "window_right_side_ignored" in bugs:
        right = None
    if "window_added_in_place_of_subtracted" in bugs and left is not None:
        left = -left
    lower = position - left if left is not None else torch.full_like(position, -(1 << 40))
    upper = position + right if right is not None else torch.full_like(position, 1 << 40)
    return (key >= lower) & (key <= upper)


def segment_table(call: Call) -> Tensor:
    """True where query and key carry one segment id, [B or 1, 1, Q, K]; ids are [Q], [K] or [B,Q], [B,K]."""
    assert call.segments is not None
    bugs, cols = call.bugs, call.tile[1]
    query, key = (ids if ids.dim() == 2 else ids[None] for ids in call.segments)
    if "segments_of_the_first_batch_used_for_all" in bugs:
        query, key = query[:1], key[:1]
    if "segment_checked_once_a_key_tile" in bugs:
        key = key[:, torch.arange(call.shape.keys) // cols * cols]
    if "earlier_segments_stay_visible" in bugs:
        return query[:, None, :, None] >= key[:, None, None, :]
    return query[:, None, :, None] == key[:, None, None, :]


def mask_table(call: Call, mask: Tensor, phase: str) -> Tensor:
    """The caller's boolean mask spread to [B,Hq,Q,K]; True may attend."""
    shape, bugs, (rows, cols) = call.shape, call.bugs, call.tile
    full = (shape.batch, shape.query_heads, shape.queries, shape.keys)
    if "mask_strides_ignored" in bugs or ("backward_mask_strides_ignored" in bugs and phase == "backward"):
        mask = misread(mask)
    one_column = mask.dim() >= 2 and mask.shape[-1] == 1 and mask.shape[-2] > 1
    if "mask_of_one_column_read_on" in bugs and one_column:
        row, key = torch.arange(shape.queries)[:, None], torch.arange(shape.keys)[None, :]
        return mask[..., 0][..., (row + key) % mask.shape[-2]].expand(full)
    one_row = mask.dim() >= 1 and mask.shape[-1] > 1 and (mask.dim() == 1 or mask.shape[-2] == 1)
    if "key_padding_read_along_the_queries" in bugs and one_row:
        line = mask if mask.dim() == 1 else mask[..., 0, :]
        return line[..., torch.arange(shape.queries) % shape.keys, None].expand(full)
    table = mask.expand(full)
    if "mask_polarity_inverted" in bugs:
        table = ~table
    if "mask_of_the_first_batch_used_for_all" in bugs:
        table = table[:1].expand(full)
    if "mask_of_the_first_head_used_for_all" in bugs:
        table = table[:, :1].expand(full)
    tile_row = torch.arange(shape.queries) // rows * rows
    if "first_mask_row_of_a_tile_used_for_all" in bugs:
        table = table[:, :, tile_row]
    if "backward_first_mask_row_of_a_tile_used_for_all" in bugs and phase == "backward":
        table = table[:, :, tile_row]
    if "square_mask_transposed" in bugs and shape.queries == shape.keys:
        table = table.transpose(-2, -1)
    if "mask_ignored_before_the_last_key_tile" in bugs:
        table = table | (torch.arange(shape.keys) // cols < (shape.keys - 1) // cols)
    if "mask_constant_on_each_tile_taken_as_trivial" in bugs:
        tile_key = torch.arange(shape.keys) // cols * cols
        table = torch.ones_like(table) if torch.equal(table, table[:, :, tile_row][..., tile_key]) else table
    if "boolean_mask_ignored" in bugs:
        table = torch.ones_like(table)
    return table


def visible_table(call: Call, bias: Tensor | None, phase: str, cached: bool) -> Tensor:
    """Who may attend whom, padded to whole tiles with False, [B,Hq,Qp,Kp].

    bias is the additive mask spread to [B,Hq,Q,K]: its -inf entries are illegal edges, not numbers.
    """
    shape, bugs = call.shape, call.bugs
    visible = torch.ones(shape.batch, shape.query_heads, shape.queries, shape.keys, dtype=torch.bool)
    if call.mask is not None:
        visible = visible & mask_table(call, call.mask, phase)
    if bias is not None:
        visible = visible & (bias != -INF)
    if causal_applies(call, cached) and "causal_hidden_by_adding_a_finite_minimum" not in bugs:
        visible = visible & causal_table(call, phase)
    use_window = call.window is not None and "window_ignored" not in bugs
    if "window_ignored_without_a_mask" in bugs and call.mask is None:
        use_window = False
    if use_window:
        visible = visible & window_table(call, phase)
    if call.segments is not None and "segments_ignored" not in bugs:
        visible = visible & segment_table(call)
    if "last_key_dropped" in bugs and shape.keys:
        visible[..., -1] = False
    if "last_key_of_a_partial_tile_dropped" in bugs and shape.keys % call.tile[1]:
        visible[..., -1] = False
    if "every_second_key_dropped" in bugs:
        visible[..., 1::2] = False
    if "backward_forgets_every_mask" in bugs and phase == "backward":
        visible = torch.ones_like(visible)
    pad_rows = padded_length(shape.queries, call.tile[0]) - shape.queries
    pad_keys = padded_length(shape.keys, call.tile[1]) - shape.keys
    pad_seen = "pad_keys_scored_zero" in bugs or "keys_past_the_end_attended" in bugs
    pad_seen = pad_seen or ("backward_pad_keys_scored_zero" in bugs and phase == "backward")
    visible = torch.nn.functional.pad(visible, (0, pad_keys), value=pad_seen)
    return torch.nn.functional.pad(visible, (0, 0, 0, pad_rows), value=False)
