"""Scores of one tile, and the loops that say which tiles there are."""

from __future__ import annotations

import torch
from torch import Tensor

from .call import Call
from .load import Loaded
from .numerics import rounded
from .visibility import diagonal_offset

INF = float("inf")

# planted bugs that let a row see keys beyond the tiles its correct loop visits
WIDENING = frozenset({
    "backward_causal_alignment_swapped",
    "backward_forgets_every_mask",
    "causal_dropped_beside_a_mask",
    "causal_dropped_beside_dropout",
    "causal_dropped_for_cached_keys",
    "causal_hidden_by_adding_a_finite_minimum",
    "causal_sees_one_future_key",
    "key_index_kept_in_eight_bits",
    "late_rows_see_one_future_key",
    "row_position_read_from_the_packed_group",
    "single_query_skips_causal",
    "window_anchored_at_the_upper_left",
    "window_counts_one_key_too_many",
    "window_ignored",
    "window_ignored_without_a_mask",
    "window_of_zero_taken_as_open",
})  # fmt: skip


def query_tiles(call: Call) -> list[slice]:
    """Row ranges of the query tiles."""
    bugs, rows, count = call.bugs, call.tile[0], -(-call.shape.queries // call.tile[0])
    if "last_partial_query_tile_unwritten" in bugs and call.shape.queries % rows:
        count -= 1
    return [slice(i * rows, (i + 1) * rows) for i in range(count)]


def key_tiles(call: Call, rows: slice) -> list[slice]:
    """Column ranges of the key tiles a query tile visits; tiles outside causal or window are skipped."""
    bugs, cols, shape = call.bugs, call.tile[1], call.shape
    first, stop = 0, -(-shape.keys // cols)
    offset = diagonal_offset(call, "forward")
    if call.is_causal and loop_may_stop_early(call):
        stop = min(stop, max(0, -(-(rows.stop + offset) // cols)))
        if "causal_loop_stops_at_the_query_length" in bugs:
            stop = min(stop, -(-shape.queries // cols))
        if "causal_loop_stops_one_tile_early" in bugs:
            stop = min(stop, max(1, (rows.start + offset) // cols))
    if call.window is not None and call.window[0] is not None and loop_may_stop_early(call):
        first = min(stop, max(0, (rows.start + offset - call.window[0]) // cols))
        if "window_loop_starts_one_tile_late" in bugs:
            first = min(stop, max(0, -(-(rows.start + offset - call.window[0]) // cols)))
    tiles = [slice(j * cols, (j + 1) * cols) for j in range(first, stop)]
    if "last_partial_key_tile_skipped" in bugs and shape.keys % cols:
        tiles = [t for t in tiles if t.stop <= shape.keys]
    if "last_full_key_tile_skipped" in bugs and shape.keys and shape.keys % cols == 0:
        tiles = [t for t in tiles if t.stop < shape.keys]
    if "ninth_key_tile_skipped" in bugs:
        tiles = [t for t in tiles if t.start != 8 * cols]
    return tiles


def loop_may_stop_early(call: Call) -> bool:
    """False where a planted bug widens visibility beyond the loop, so that the bug itself is what is seen."""
    return not WIDENING & call.bugs


def tile_scores(call: Call, data: Loaded, rows: slice, cols: slice) -> tuple[Tensor, Tensor | None]:
    """Scores of one tile before hiding, and the softcap's slope (None without softcap), [B,Hq,rows,cols].

    s = cap(scale · q·k) + bias, with cap(x) = c·tanh(x/c).
    """
    bugs, storage = call.bugs, call.numerics.storage
    query, key, scale = data.query[:, :, rows], data.key[:, :, cols], call.scale
    if "last_channels_of_an_odd_width_dropped" in bugs:
        width = call.shape.width // 8 * 8
        query, key = query[..., :width], key[..., :width]
    if "channels_past_64_ignored" in bugs:
        query, key = query[..., :64], key[..., :64]
    product = query @ key.mT
    if "score_product_rounded_before_the_scale" in bugs:
        product = rounded(product, storage)
    bias = data.bias[:, :, rows, cols] if data.bias is not None else None
    if "bias_scaled_with_the_product" in bugs and bias is not None:
        bias = bias * scale
    slope = None
    if "query_scaled_in_storage" not in bugs:
        product = product * scale
    if "softcap_applied_after_the_bias" in bugs and call.softcap is not None and bias is not None:
        product, bias = product + bias, None
    if call.softcap is not None and "softcap_ignored" not in bugs:
        inner = torch.tanh(product / call.softcap)
        if "softcap_applied_before_the_scale" in bugs and scale != 0.0:
            inner = torch.tanh(product / scale / call.softcap) * scale
        product, slope = call.softcap * inner, 1.0 - inner * inner
        if "softcap_not_multiplied_back" in bugs:
            product = inner
    scores = product if bias is None else product + bias
    if "zero_added_to_every_score" in bugs:
        scores = scores + 0.0
    if "scores_rounded_to_storage" in bugs:
        scores = rounded(scores, storage)
    if "visible_scores_raised_by_one" in bugs:
        scores = scores + 1.0
    return scores, slope


def hide(call: Call, data: Loaded, scores: Tensor, rows: slice, cols: slice) -> Tensor:
    """Scores with illegal edges at -inf; no bias and no NaN of a hidden key survives it."""
    bugs, visible = call.bugs, data.visible[:, :, rows, cols]
    if "hidden_scores_set_to_minus_ten_thousand" in bugs:
        return torch.where(visible, scores, -1e4)
    if "hidden_scores_set_to_minus_1e10_in_storage" in bugs:
        return torch.where(visible, scores, float(torch.tensor(-1e10).to(call.numerics.storage)))
    if "bias_revives_hidden_keys" in bugs and data.bias is not None:
        return torch.where(visible, scores, -8.0 + data.bias[:, :, rows, cols])
    if "mask_applied_twice" in bugs:
        scores = torch.where(visible, scores, -INF)
    return torch.where(visible, scores, -INF)
