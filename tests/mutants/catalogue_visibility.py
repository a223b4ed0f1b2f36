"""Planted bugs of who may attend whom: masks, causal, window, segments, hidden keys, loops over tiles."""

from __future__ import annotations

from .bug import bug

MASKS = (
    bug("mask_polarity_inverted", "visibility",
        "LLMs-from-scratch#1061 torchTextClassifiers#92 Ascend-pytorch#88 pytorch#170400", needs="mask"),
    bug("boolean_mask_ignored", "visibility", "pytorch#188322 torch-spyre#4526", needs="mask"),
    bug("additive_mask_ignored", "encoding", "torch-spyre#4526", needs="additive_mask"),
    bug("float_mask_bits_read_as_half", "encoding", "pytorch#191612", needs="additive_mask", acts="float32"),
    bug("square_mask_transposed", "mask_axis", needs="mask"),
    bug("first_mask_row_of_a_tile_used_for_all", "mask_axis", "tabfm#40", needs="mask"),
    bug("mask_of_the_first_batch_used_for_all", "mask_axis", "pytorch#139462", needs="mask"),
    bug("mask_of_the_first_head_used_for_all", "mask_axis", "pytorch#192138", needs="mask"),
    bug("mask_of_one_column_read_on", "mask_axis", "pytorch#128816", needs="mask"),
    bug("key_padding_read_along_the_queries", "mask_axis", "vllm-omni#5865", needs="mask"),
    bug("mask_ignored_before_the_last_key_tile", "tile_edge", "pytorch#188322", needs="mask"),
    bug("mask_constant_on_each_tile_taken_as_trivial", "tile_edge", "pytorch#188322", needs="mask"),
    bug("mask_strides_ignored", "layout", "pytorch#134995 pytorch#188246 pytorch#128816", needs="mask layout"),
    bug("mask_applied_twice", "visibility", needs="mask",
        equivalent="hiding is idempotent: -inf is put where -inf already is"),
)  # fmt: skip

CAUSAL = (
    bug("causal_alignment_swapped", "rectangular",
        "flash-attention#402 flash-attention#282 flash-attention#517 SageAttention#26 SageAttention#372 "
        "SageAttention#131 mlx#2835 executorch#22426", needs="causal"),
    bug("causal_offset_taken_from_padded_keys", "rectangular", "pytorch#192138", needs="causal lower_right"),
    bug("first_row_of_a_tile_bounds_all_its_rows", "visibility", "pytorch#192138", needs="causal"),
    bug("last_row_of_a_tile_bounds_all_its_rows", "visibility", "pytorch#192138", needs="causal"),
    bug("row_position_read_from_the_packed_group", "grouped_heads", "pytorch#192138 pytorch#191984",
        needs="causal grouped_heads"),
    bug("key_index_kept_in_eight_bits", "size_limits",
        "mlx#3361 SageAttention#386 vllm#50427", needs="causal"),
    bug("causal_sees_one_future_key", "visibility", "transformers#48748", needs="causal"),
    bug("causal_hides_the_diagonal", "visibility", needs="causal"),
    bug("late_rows_see_one_future_key", "size_limits", needs="causal"),
    bug("late_rows_lose_their_own_key", "size_limits", needs="causal"),
    bug("causal_mask_only_on_the_diagonal_tile", "rectangular", "jax#24491", needs="causal"),
    bug("single_query_skips_causal", "rectangular", "TinyLLM#18 mlx#2835 pytorch#192138", needs="causal"),
    bug("causal_dropped_beside_dropout", "visibility", "keras#23038", needs="causal multiplier"),
    bug("causal_dropped_beside_a_mask", "visibility", "pytorch#187801 transformers#48748 transformers#48769 "
        "transformers#48770 keras#23038", needs="causal mask"),
    bug("causal_dropped_for_cached_keys", "layout", "TinyLLM#18", needs="causal layout"),
    bug("causal_loop_stops_at_the_query_length", "rectangular", "jax#24491", needs="causal lower_right"),
    bug("causal_loop_stops_one_tile_early", "tile_edge", needs="causal"),
    bug("causal_hidden_by_adding_a_finite_minimum", "empty_rows",
        "Automodel#2658 pytorch#109517 pytorch#110213 flax#982", needs="causal mask"),
)  # fmt: skip

WINDOWS = (
    bug("window_counts_one_key_too_many", "window",
        "transformers#39408 transformers#26792 transformers#29623 mlx-lm#390", needs="window"),
    bug("window_right_side_ignored", "window", needs="window"),
    bug("window_added_in_place_of_subtracted", "window", "transformers#41228", needs="window"),
    bug("window_ignored", "window", "unsloth#8253 jax#32300", needs="window"),
    bug("window_ignored_without_a_mask", "window", "jax#32300", needs="window"),
    bug("window_of_zero_taken_as_open", "window", "unsloth#8253", needs="window"),
    bug("window_anchored_at_the_upper_left", "window", "transformers#26792", needs="window lower_right"),
    bug("window_loop_starts_one_tile_late", "window", needs="window"),
    bug("segments_ignored", "segments", "flash-linear-attention#838 flash-linear-attention#1086", needs="segments"),
    bug("segment_checked_once_a_key_tile", "segments", "tt-metal#41215 tt-metal#48899", needs="segments"),
    bug("segments_of_the_first_batch_used_for_all", "segments", "pytorch#139462", needs="segments"),
    bug("earlier_segments_stay_visible", "segments", "flash-linear-attention#838", needs="segments"),
)  # fmt: skip

TILES = (
    bug("last_key_dropped", "values"),
    bug("every_second_key_dropped", "values"),
    bug("last_key_of_a_partial_tile_dropped", "tile_edge", "xla#8671"),
    bug("last_partial_key_tile_skipped", "tile_edge", "xla#8671"),
    bug("last_full_key_tile_skipped", "tile_edge"),
    bug("ninth_key_tile_skipped", "size_limits"),
    bug("pad_keys_scored_zero", "tile_edge", "xla#8671 pytorch#136232"),
    bug("keys_past_the_end_attended", "tile_edge", "tt-metal#41215 tt-metal#48899"),
    bug("pad_values_hold_nan", "tile_edge", "flash-attention#1745"),
    bug("backward_pad_keys_hold_nan", "tile_edge", "flash-attention#1745 pytorch#136232", needs="gradients"),
    bug("backward_pad_keys_scored_zero", "large_logits",
        "pytorch#196678 trl#7181 cudnn-frontend#160 cudnn-frontend#1072", needs="gradients"),
    bug("query_pad_rows_hold_nan_in_backward", "tile_edge", "pytorch#136232", needs="gradients"),
    bug("last_partial_query_tile_unwritten", "tile_edge", "flash-linear-attention#1029"),
    bug("first_key_of_a_later_tile_counted_twice", "tile_edge"),
    bug("values_of_the_previous_key_tile_read", "tile_edge"),
    bug("first_two_value_pages_swapped", "tile_edge"),
    bug("hidden_keys_not_zeroed", "hidden_keys", "pytorch#101967 flash-attention#1745",
        needs="gradients nan_in_hidden"),
    bug("hidden_values_not_zeroed", "hidden_keys", "pytorch#101967 flash-attention#1745", needs="nan_in_hidden"),
)  # fmt: skip

VISIBILITY = MASKS + CAUSAL + WINDOWS + TILES
