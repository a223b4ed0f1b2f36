"""Planted bugs that leave the output right: saved LSE, D, score gradient, accumulation, groups, bias gradient."""

from __future__ import annotations

from .bug import bug

RECOMPUTE = (
    bug("saved_lse_rounded_to_storage", "low_precision", needs="gradients", acts="low"),
    bug("saved_lse_in_base_two", "gradient_only", "flashinfer#2113", needs="gradients"),
    bug("lse_not_saved_when_only_the_bias_needs_gradient", "bias", "pytorch#188302 pytorch#148476",
        needs="gradients bias_gradient bias_gradient_alone"),
    bug("backward_lse_of_the_first_batch_used_for_all", "gradient_only", "TransformerEngine#3216",
        needs="gradients"),
    bug("backward_empty_rows_unguarded", "empty_rows",
        "pytorch#41508 pytorch#178251 pytorch#119320 flash-attention#443", needs="gradients"),
    bug("backward_divides_exponentials", "large_logits", "flash-attention#1052", needs="gradients"),
    bug("backward_forgets_every_mask", "gradient_only", "pytorch#158212", needs="gradients"),
    bug("backward_causal_alignment_swapped", "rectangular", "flash-attention#443", needs="gradients causal"),
    bug("backward_first_mask_row_of_a_tile_used_for_all", "mask_axis", "tabfm#40", needs="gradients mask"),
    bug("backward_mask_strides_ignored", "layout", "pytorch#134995 pytorch#188246", needs="gradients mask layout"),
    bug("backward_forgets_the_softcap", "softcap", "flash-attention#2544", needs="gradients softcap"),
    bug("delta_omitted", "gradient_only", needs="gradients"),
    bug("delta_added_in_place_of_subtracted", "gradient_only", needs="gradients"),
    bug("delta_rounded_to_storage", "low_precision", needs="gradients", acts="low"),
    bug("delta_of_the_first_batch_used_for_all", "gradient_only", "TransformerEngine#3216", needs="gradients"),
    bug("delta_of_the_first_head_used_for_all", "gradient_only", needs="gradients"),
    bug("probability_gradient_rounded_to_storage", "low_precision", needs="gradients", acts="low"),
)  # fmt: skip

DROPOUT = (
    bug("backward_draws_another_dropout", "dropout_backward", "pytorch#197563 pytorch#196586",
        needs="gradients multiplier"),
    bug("backward_dropout_scaled_by_the_drop_rate", "dropout_backward", "apex#816", needs="gradients multiplier"),
    bug("probability_gradient_not_dropped", "dropout_backward", "nki-samples#81", needs="gradients multiplier"),
    bug("score_gradient_uses_dropped_weights", "dropout_backward", "nki-samples#81", needs="gradients multiplier"),
    bug("value_gradient_not_dropped", "dropout_backward", needs="gradients multiplier"),
)  # fmt: skip

ACCUMULATE = (
    bug("scale_missing_from_the_query_gradient", "scale", needs="gradients"),
    bug("scale_missing_from_the_key_gradient", "scale", needs="gradients"),
    bug("query_gradient_uses_the_default_scale", "scale", "flash-attention#2623", needs="gradients"),
    bug("query_gradient_doubled", "gradient_only", needs="gradients"),
    bug("key_gradient_negated", "gradient_only", needs="gradients"),
    bug("query_gradient_keeps_only_the_last_tile", "gradient_only", needs="gradients"),
    bug("key_gradient_keeps_only_the_last_tile", "gradient_only", "pytorch#158212", needs="gradients"),
    bug("value_gradient_keeps_only_the_last_tile", "gradient_only", needs="gradients"),
    bug("query_gradient_accumulated_in_storage", "low_precision", needs="gradients", acts="low"),
    bug("key_gradient_accumulated_in_storage", "low_precision", needs="gradients", acts="low"),
    bug("value_gradient_accumulated_in_storage", "low_precision", needs="gradients", acts="low"),
    bug("query_gradient_lacks_the_last_key_tile", "tile_edge", needs="gradients"),
    bug("last_key_row_missing_from_the_key_gradient", "gradient_only", needs="gradients"),
    bug("no_queries_leave_gradients_unwritten", "zero_sizes", "flash-attention#2421", needs="gradients"),
    bug("key_gradient_written_with_query_strides", "layout", "pytorch#146377", needs="gradients layout"),
    bug("group_gradient_keeps_only_the_last_head", "grouped_heads", needs="gradients grouped_heads"),
    bug("group_gradient_averaged", "grouped_heads", needs="gradients grouped_heads"),
    bug("group_gradient_summed_over_strided_heads", "grouped_heads", "HipKittens#22",
        needs="gradients grouped_heads"),
    bug("bias_gradient_zero", "bias", "jax#27184 jax#23701", needs="gradients bias_gradient"),
    bug("bias_gradient_scaled", "bias", needs="gradients bias_gradient"),
    bug("bias_gradient_missing_in_the_partial_key_tile", "bias", needs="gradients bias_gradient"),
    bug("bias_gradient_of_the_first_batch_only", "bias", needs="gradients bias_gradient"),
    bug("bias_gradient_of_the_last_head_only", "bias", needs="gradients bias_gradient"),
)  # fmt: skip

BACKWARD = RECOMPUTE + DROPOUT + ACCUMULATE
