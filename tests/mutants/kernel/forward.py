"""The forward pass over query tiles; key tiles in one or two parts, merged."""

from __future__ import annotations

import math
from itertools import count

import torch
from torch import Tensor

from .call import Call
from .load import Loaded
from .numerics import rounded
from .online import INF, Acc, block, finish, merge, row_lse, start
from .scores import hide, key_tiles, query_tiles, tile_scores

calls = count()  # read only by the planted bug whose result depends on how often it was called


def parts_of(call: Call, tiles: list[slice]) -> list[list[slice]]:
    """Key tiles in the parts that are reduced apart and then merged: two parts from three tiles on."""
    if "accumulation_order_changes_between_calls" in call.bugs and next(calls) % 2:
        tiles = tiles[::-1]
    if len(tiles) < 3:
        return [tiles]
    half = -(-len(tiles) // 2)
    return [tiles[:half], tiles[half:]]


def reduce_part(call: Call, data: Loaded, rows: slice, tiles: list[slice]) -> Acc:
    """The online softmax of one query tile over some key tiles."""
    acc = start(call, data.query[:, :, rows, 0:1].sum(-1), data.value.shape[-1])
    for index, cols in enumerate(tiles):
        scores, _ = tile_scores(call, data, rows, cols)
        hidden = hide(call, data, scores, rows, cols)
        value_cols = cols
        if "values_of_the_previous_key_tile_read" in call.bugs and index > 0:
            value_cols = tiles[index - 1]
        multiplier = None if data.multiplier is None else data.multiplier[:, :, rows, cols]
        acc = block(call, acc, scores, hidden, data.value[:, :, value_cols], multiplier, cols.start)
    return acc


def forward_tile(call: Call, data: Loaded, rows: slice) -> tuple[Tensor, Tensor]:
    """Output [B,Hq,rows,Dv] and LSE [B,Hq,rows] of one query tile."""
    bugs = call.bugs
    parts = [reduce_part(call, data, rows, tiles) for tiles in parts_of(call, key_tiles(call, rows))]
    acc = parts[0]
    for part in parts[1:]:
        acc = merge(call, acc, part)
    out, lse = finish(call, acc, data.value)
    if "merged_lse_is_that_of_the_first_part" in bugs:
        lse = row_lse(call, parts[0], parts[0].mass)
    if "empty_row_poisons_its_tile" in bugs:
        real = torch.arange(rows.start, rows.stop) < call.shape.queries
        out = torch.where(((lse == -INF) & real).any(-1)[..., None, None], torch.nan, out)
    if "first_row_of_a_query_tile_copied_to_the_second" in bugs and out.shape[2] > 1:
        out = torch.cat([out[:, :, :1], out[:, :, :1], out[:, :, 2:]], 2)
    return out, lse


def forward(call: Call, data: Loaded) -> tuple[Tensor, Tensor]:
    """Output [B,Hq,Q,Dv] in storage and LSE [B,Hq,Q] in the accumulator type."""
    shape, bugs = call.shape, call.bugs
    out = data.query.new_zeros(shape.batch, shape.query_heads, data.query.shape[2], shape.value_width)
    lse = data.query.new_full(out.shape[:3], -INF)
    for rows in query_tiles(call):
        out[:, :, rows], lse[:, :, rows] = forward_tile(call, data, rows)
    out, lse = out[:, :, : shape.queries], lse[:, :, : shape.queries]
    if "no_keys_gives_nan" in bugs and shape.keys == 0:
        out = torch.full_like(out, torch.nan)
    if "zero_width_returns_zeros" in bugs and shape.width == 0:
        out = torch.zeros_like(out)
    return written(call, out).to(call.numerics.storage), lse


def written(call: Call, out: Tensor) -> Tensor:
    """The output as it reaches memory; only planted bugs change anything here."""
    shape, bugs = call.shape, call.bugs
    if "output_heads_rotated" in bugs:
        out = out.roll(1, 1)
    if "last_query_row_zeroed" in bugs and shape.queries:
        out = torch.cat([out[:, :, :-1], torch.zeros_like(out[:, :, -1:])], 2)
    if "last_channels_of_an_odd_value_width_unwritten" in bugs:
        out = out * (torch.arange(shape.value_width) < shape.value_width // 8 * 8)
    if "value_width_taken_from_the_query_width" in bugs:
        out = out * (torch.arange(shape.value_width) < shape.width)
    if "grid_stops_after_eight_heads" in bugs:
        launched = torch.arange(shape.batch * shape.query_heads).reshape(shape.batch, shape.query_heads) < 8
        out = out * launched[..., None, None]
    if "output_heads_and_rows_swapped_in_memory" in bugs:
        out = out.transpose(1, 2).reshape(out.shape)
    return out


def returned_lse(call: Call, lse: Tensor) -> Tensor:
    """The LSE handed to the caller, natural logarithm; the saved one is what the backward pass reads."""
    bugs = call.bugs
    if "returned_lse_in_base_two" in bugs:
        return lse / math.log(2)
    if "returned_lse_all_zero" in bugs:
        return torch.zeros_like(lse)
    if "returned_lse_rounded_to_storage" in bugs:
        return rounded(lse, call.numerics.storage)
    return lse


def saved_lse(call: Call, lse: Tensor) -> Tensor:
    """The LSE kept for the backward pass."""
    bugs = call.bugs
    if "saved_lse_rounded_to_storage" in bugs:
        return rounded(lse, call.numerics.storage)
    if "saved_lse_in_base_two" in bugs:
        return lse / math.log(2)
    return lse
