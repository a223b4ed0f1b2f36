"""Planted bugs of the forward pass: scores, softmax, merging, dropout, heads, memory, LSE, what reaches the caller."""

from __future__ import annotations

from .bug import bug

SCORES = (
    bug("scale_omitted", "scale", "maxtext#1370"),
    bug("user_scale_ignored", "scale", "maxtext#1370"),
    bug("scale_taken_from_the_model_width", "scale", "dfdx#171"),
    bug("scale_taken_from_the_value_width", "scale"),
    bug("zero_scale_taken_as_missing", "scale"),
    bug("user_scale_applied_twice", "scale", "maxtext#1370"),
    bug("sign_of_scale_lost", "scale"),
    bug("bias_scaled_with_the_product", "scale", needs="bias"),
    bug("last_channels_of_an_odd_width_dropped", "head_dim_tail"),
    bug("channels_past_64_ignored", "head_dim_tail", "triton#621"),
    bug("scores_rounded_to_storage", "low_precision", acts="low"),
    bug("score_product_rounded_before_the_scale", "low_precision", "pytorch#119131 pytorch#121558", acts="low"),
    bug("query_scaled_in_storage", "low_precision", "pytorch#119131", acts="low"),
    bug("query_and_key_read_as_tf32", "low_precision", acts="wide"),
    bug("softcap_ignored", "softcap", needs="softcap"),
    bug("softcap_applied_after_the_bias", "softcap", needs="softcap bias"),
    bug("softcap_applied_before_the_scale", "softcap", needs="softcap"),
    bug("softcap_not_multiplied_back", "softcap", needs="softcap"),
    bug("bias_ignored", "bias", "torch-spyre#4526", needs="bias"),
    bug("bias_of_the_first_batch_used_for_all", "mask_axis", needs="bias"),
    bug("bias_of_the_first_head_used_for_all", "mask_axis", "pytorch#192138", needs="bias"),
    bug("bias_head_counted_from_the_slice", "bias", "flashinfer#1606 Megatron-DeepSpeed#227", needs="bias"),
    bug("bias_head_taken_from_the_kv_head", "grouped_heads", "pytorch#192138", needs="bias grouped_heads"),
    bug("bias_head_read_once_a_packed_tile", "grouped_heads", "pytorch#192138 pytorch#191984",
        needs="bias grouped_heads"),
    bug("bias_row_shifted_on_rectangles", "rectangular", "flash-attention#907", needs="bias"),
    bug("bias_dropped_in_the_last_key_tile", "tile_edge", needs="bias"),
    bug("zero_added_to_every_score", "values",
        equivalent="s + 0 is s; a score of -0 becomes +0, and exp and the maximum cannot tell them apart"),
)  # fmt: skip

SOFTMAX = (
    bug("no_running_maximum", "large_logits", "flash-attention#1052 flash-attention#752"),
    bug("maximum_taken_before_hiding", "large_logits"),
    bug("maximum_forgotten_between_tiles", "large_logits"),
    bug("maximum_of_the_first_tile_kept", "large_logits"),
    bug("one_maximum_for_the_whole_tile", "large_logits"),
    bug("running_maximum_starts_at_minus_fifty_thousand", "large_logits", "flashinfer#4267 flashinfer#4450"),
    bug("running_maximum_starts_at_zero", "large_logits"),
    bug("accumulator_not_rescaled", "values"),
    bug("mass_not_rescaled", "values"),
    bug("accumulator_rescaled_the_wrong_way", "values"),
    bug("hidden_tile_erases_the_earlier_keys", "tile_edge"),
    bug("rows_whose_first_tile_is_hidden_give_nan", "empty_rows", "pytorch#41508 onnxscript#2479 pytorch#159973"),
    bug("hidden_scores_set_to_minus_ten_thousand", "empty_rows", "pytorch#109517 pytorch#110213"),
    bug("hidden_scores_set_to_minus_1e10_in_storage", "empty_rows", "flax#982 Automodel#2658"),
    bug("bias_revives_hidden_keys", "visibility", needs="bias mask"),
    bug("hidden_keys_stay_in_the_denominator", "visibility", "pytorch-image-models#2236"),
    bug("empty_row_outputs_nan", "empty_rows", "pytorch#41508 pytorch#190486 pytorch#160064 pytorch#81077"),
    bug("empty_row_outputs_the_mean_of_the_values", "empty_rows", "pytorch#110213"),
    bug("empty_row_poisons_its_tile", "empty_rows", "pytorch#41508"),
    bug("all_weights_uniform", "values"),
    bug("exponent_constant_rounded_to_half", "low_precision"),
    bug("exponent_constant_rounded_to_bfloat16", "low_precision"),
    bug("exponent_constant_truncated_to_four_decimals", "low_precision"),
    bug("numerator_rounded_before_the_mass", "low_precision", acts="low"),
    bug("probabilities_rounded_to_eight_bits", "low_precision"),
    bug("row_mass_kept_in_storage", "low_precision", acts="low"),
    bug("output_accumulator_kept_in_storage", "low_precision", acts="low"),
    bug("accumulator_rescaled_once_more_by_one", "values", equivalent="multiplying by one changes no bit"),
    bug("shift_guarded_twice", "empty_rows", equivalent="after the first guard no shift is -inf"),
    bug("row_mass_bounded_below_by_one", "values",
        equivalent="the largest visible score contributes exp(0) = 1 exactly, and merging keeps one factor at 1"),
)  # fmt: skip

MERGE = (
    bug("merge_of_two_empty_parts_gives_nan", "split_merge", "flashinfer#4051"),
    bug("merge_adds_parts_without_their_shifts", "split_merge"),
    bug("merge_forgets_the_second_shift", "split_merge"),
    bug("merge_skips_the_second_part_beside_an_empty_first", "split_merge", "flashinfer#4051"),
    bug("merge_averages_the_parts", "split_merge"),
    bug("merge_leaves_later_rows_of_the_second_part_unwritten", "split_merge", "FlagGems#5235 flash-attention#2388"),
    bug("merged_lse_is_that_of_the_first_part", "split_merge", "FlagGems#5235", needs="lse"),
)  # fmt: skip

DROPOUT = (
    bug("dropout_ignored", "dropout", needs="multiplier"),
    bug("dropout_survivors_not_rescaled", "dropout", needs="multiplier"),
    bug("dropout_of_the_first_head_used_for_all", "dropout", needs="multiplier"),
    bug("dropout_restarts_at_every_key_tile", "dropout", needs="multiplier"),
    bug("dropout_before_the_normalisation", "dropout", needs="multiplier"),
    bug("dropout_active_although_off", "dropout", "pytorch#124464 pytorch#99293 torchtune#1791"),
)  # fmt: skip

HEADS = (
    bug("grouped_heads_tiled_in_place_of_repeated", "grouped_heads", "onnx#7274", needs="grouped_heads"),
    bug("value_heads_tiled_in_place_of_repeated", "grouped_heads", "onnx#7274", needs="grouped_heads"),
    bug("group_size_used_as_head_stride", "grouped_heads", "HipKittens#22", needs="grouped_heads"),
    bug("every_query_head_reads_kv_head_zero", "grouped_heads", "pytorch#193893"),
    bug("head_map_ignored", "grouped_heads", needs="head_map"),
    bug("uneven_groups_accepted", "contract", "flash-linear-attention#1029", needs="refusals"),
    bug("mixed_types_accepted", "contract", "pytorch#171190 pytorch#171191", needs="refusals"),
    bug("output_heads_rotated", "values"),
    bug("values_of_the_first_batch_used_for_all", "values", "pytorch#139462"),
)  # fmt: skip

MEMORY = (
    bug("query_strides_ignored", "layout", "pytorch#181133", needs="layout"),
    bug("key_strides_ignored", "layout", "pytorch#181133", needs="layout"),
    bug("value_strides_ignored", "layout", "pytorch#181133", needs="layout"),
    bug("broadcast_key_read_as_dense", "layout", "pytorch#191937", needs="layout"),
    bug("key_heads_and_length_swapped", "layout", "pytorch#195320"),
    bug("output_heads_and_rows_swapped_in_memory", "layout", "FlagGems#5235 pytorch#181133"),
    bug("query_scaled_in_place", "inputs", "flash-linear-attention#838", needs="inputs_after"),
    bug("hidden_keys_zeroed_in_place", "inputs", "flash-linear-attention#838", needs="inputs_after mask"),
    bug("value_overwritten_with_zeros", "inputs", "flash-attention#638", needs="inputs_after"),
    bug("mask_overwritten_with_causal", "inputs", "flash-linear-attention#838", needs="inputs_after mask causal"),
    bug("multiplier_overwritten", "inputs", needs="inputs_after multiplier"),
    bug("output_gradient_overwritten", "inputs", needs="inputs_after gradients"),
    bug("write_past_the_end_of_a_key_view", "inputs", "flash-attention#638",
        needs="inputs_after memory_around_inputs layout"),
)  # fmt: skip

OUTPUT = (
    bug("last_query_row_zeroed", "values"),
    bug("first_row_of_a_query_tile_copied_to_the_second", "values"),
    bug("last_channels_of_an_odd_value_width_unwritten", "head_dim_tail"),
    bug("value_width_taken_from_the_query_width", "head_dim_tail"),
    bug("grid_stops_after_eight_heads", "size_limits", "MagiAttention#40"),
    bug("output_keeps_the_accumulator_type", "contract", acts="low"),
    bug("output_cut_after_the_last_row_with_a_key", "contract", "pytorch#97111"),
    bug("no_keys_gives_nan", "zero_sizes", "pytorch#81077"),
    bug("zero_width_returns_zeros", "zero_sizes", "pytorch#184330"),
    bug("accumulation_order_changes_between_calls", "determinism", "flash-attention#2244", needs="repeat_calls"),
)  # fmt: skip

LSE = (
    bug("lse_without_the_maximum", "lse_only", needs="lse"),
    bug("lse_of_an_empty_row_is_zero", "lse_only", "pytorch#134650", needs="lse"),
    bug("returned_lse_in_base_two", "lse_only", "flashinfer#2113 flashinfer#4485", needs="lse"),
    bug("returned_lse_all_zero", "lse_only", "attention-gym#37", needs="lse"),
    bug("returned_lse_rounded_to_storage", "lse_only", needs="lse", acts="low"),
    bug("visible_scores_raised_by_one", "lse_only", "tinygrad#2425 vllm#945", needs="lse"),
)  # fmt: skip

FORWARD = SCORES + SOFTMAX + MERGE + DROPOUT + HEADS + MEMORY + OUTPUT + LSE
