"""The online softmax: start, one block, merge of two parts, finish. Rows carry a shift, a mass and an output."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .call import Call
from .numerics import rounded

INF = float("inf")


@dataclass(frozen=True)
class Acc:
    """Row state over the keys seen so far: the running maximum (shift), Σ exp(s - shift) (mass), and
    Σ exp(s - shift)·Z·v (out).

    shift, mass [B,Hq,rows]; out [B,Hq,rows,Dv]. A row that saw no visible key has shift -inf and mass 0.
    """

    shift: Tensor
    mass: Tensor
    out: Tensor


def start(call: Call, like: Tensor, width: int) -> Acc:
    """The state before any key; like gives [B,Hq,rows] and the accumulator type."""
    first = -INF
    if "running_maximum_starts_at_minus_fifty_thousand" in call.bugs:
        first = -5e4
    if "running_maximum_starts_at_zero" in call.bugs:
        first = 0.0
    zero = torch.zeros_like(like)
    return Acc(torch.full_like(like, first), zero, zero[..., None].expand(*like.shape, width))


def finite_shift(call: Call, shift: Tensor) -> Tensor:
    """The shift to subtract: 0 in place of -inf, so that rows without a visible key give exp(-inf) = 0."""
    if "rows_whose_first_tile_is_hidden_give_nan" in call.bugs:
        return shift
    if "hidden_scores_set_to_minus_1e10_in_storage" in call.bugs:
        return shift
    if "shift_guarded_twice" in call.bugs:
        shift = torch.where(shift == -INF, 0.0, shift)
    return torch.where(shift == -INF, 0.0, shift)


def next_shift(call: Call, acc: Acc, scores: Tensor, hidden: Tensor) -> Tensor:
    """The running maximum after a block; hidden is the block's scores with illegal edges at -inf."""
    bugs = call.bugs
    if "no_running_maximum" in bugs:
        return torch.zeros_like(acc.shift)
    tile = scores if "maximum_taken_before_hiding" in bugs else hidden
    tile_max = tile.amax(-1)
    if "one_maximum_for_the_whole_tile" in bugs:
        tile_max = hidden.amax((-2, -1))[..., None].expand_as(tile_max)
    if "maximum_forgotten_between_tiles" in bugs:
        return tile_max
    if "maximum_of_the_first_tile_kept" in bugs:
        return torch.where(acc.mass > 0, acc.shift, tile_max)
    return torch.maximum(acc.shift, tile_max)


def rescale_factors(call: Call, acc: Acc, base: Tensor) -> tuple[Tensor, Tensor]:
    """What the old mass and the old output are multiplied by when the shift becomes base."""
    bugs, factor = call.bugs, exponential(call, acc.shift - base)
    if "accumulator_rescaled_the_wrong_way" in bugs:
        return factor, torch.where(factor > 0, 1.0 / factor, 0.0)
    if "mass_not_rescaled" in bugs:
        return torch.ones_like(factor), factor
    if "accumulator_not_rescaled" in bugs:
        return factor, torch.ones_like(factor)
    if "accumulator_rescaled_once_more_by_one" in bugs:
        return factor, factor * 1.0
    return factor, factor


def exponential(call: Call, x: Tensor) -> Tensor:
    """exp in the accumulator type; the planted bugs use base two with a rounded constant, as GPU kernels do."""
    if "exponent_constant_rounded_to_half" in call.bugs:
        return torch.exp2(x * float(torch.tensor(1 / math.log(2)).half()))
    if "exponent_constant_rounded_to_bfloat16" in call.bugs:
        return torch.exp2(x * float(torch.tensor(1 / math.log(2)).bfloat16()))
    if "exponent_constant_truncated_to_four_decimals" in call.bugs:
        return torch.exp2(x * 1.4426)
    return torch.exp(x)


def block(
    call: Call, acc: Acc, scores: Tensor, hidden: Tensor, value: Tensor, multiplier: Tensor | None, index: int
) -> Acc:
    """The state after one more key tile; index is the tile's place among the keys."""
    bugs, numerics = call.bugs, call.numerics
    shift = next_shift(call, acc, scores, hidden)
    base = finite_shift(call, shift)
    mass_factor, out_factor = rescale_factors(call, acc, base)
    if "hidden_tile_erases_the_earlier_keys" in bugs:
        kept = (hidden > -INF).any(-1)
        mass_factor, out_factor = mass_factor * kept, out_factor * kept
    numerator = exponential(call, hidden - base[..., None])
    if "all_weights_uniform" in bugs:
        numerator = (hidden > -INF).to(numerator.dtype)
    if "first_key_of_a_later_tile_counted_twice" in bugs and index > 0:
        numerator = torch.cat([2 * numerator[..., :1], numerator[..., 1:]], -1)
    if "numerator_rounded_before_the_mass" in bugs:
        numerator = rounded(numerator, numerics.storage)
    counted = numerator
    if "hidden_keys_stay_in_the_denominator" in bugs:
        counted = exponential(call, torch.minimum(scores - base[..., None], torch.zeros_like(scores)))
    if "dropout_before_the_normalisation" in bugs and multiplier is not None:
        counted = numerator * multiplier
    weights = numerator if multiplier is None else numerator * multiplier
    if "probabilities_rounded_to_eight_bits" in bugs:
        weights = rounded(weights, torch.float8_e4m3fn)
    mass = acc.mass * mass_factor + counted.sum(-1)
    out = acc.out * out_factor[..., None] + rounded(weights, numerics.probabilities) @ value
    if "row_mass_kept_in_storage" in bugs:
        mass = rounded(mass, numerics.storage)
    if "output_accumulator_kept_in_storage" in bugs:
        out = rounded(out, numerics.storage)
    return Acc(shift, mass, out)


def merge(call: Call, left: Acc, right: Acc) -> Acc:
    """The state over the keys of both parts (split-K)."""
    bugs = call.bugs
    shift = torch.maximum(left.shift, right.shift)
    base = shift if "merge_of_two_empty_parts_gives_nan" in bugs else finite_shift(call, shift)
    lf, rf = torch.exp(left.shift - base), torch.exp(right.shift - base)
    if "merge_adds_parts_without_their_shifts" in bugs:
        lf, rf = torch.ones_like(lf), torch.ones_like(rf)
    if "merge_forgets_the_second_shift" in bugs:
        rf = torch.ones_like(rf)
    if "merge_skips_the_second_part_beside_an_empty_first" in bugs:
        rf = torch.where(left.mass > 0, rf, 0.0)
    mass, out = left.mass * lf + right.mass * rf, left.out * lf[..., None] + right.out * rf[..., None]
    if "merge_averages_the_parts" in bugs:
        halves = (left.out / left.mass[..., None]).nan_to_num() + (right.out / right.mass[..., None]).nan_to_num()
        out = halves * mass[..., None] / 2
    if "merge_leaves_later_rows_of_the_second_part_unwritten" in bugs:
        out = torch.cat([out[:, :, :1], left.out[:, :, 1:] * lf[:, :, 1:, None]], 2)
    return Acc(shift, mass, out)


def finish(call: Call, acc: Acc, value: Tensor) -> tuple[Tensor, Tensor]:
    """Output [B,Hq,rows,Dv] and LSE [B,Hq,rows] in the accumulator type; empty rows give 0 and -inf."""
    bugs = call.bugs
    mass = acc.mass
    if "row_mass_bounded_below_by_one" in bugs:
        mass = torch.where(mass > 0, mass.clamp(min=1.0), mass)
    seen = mass != 0
    out = acc.out / mass[..., None]
    if "empty_row_outputs_nan" not in bugs:
        out = torch.where(seen[..., None], out, 0.0)
    if "empty_row_outputs_the_mean_of_the_values" in bugs:
        mean = value[:, :, : call.shape.keys].mean(2, keepdim=True) if call.shape.keys else 0.0
        out = torch.where(seen[..., None], out, mean)
    return out, row_lse(call, acc, mass)


def row_lse(call: Call, acc: Acc, mass: Tensor) -> Tensor:
    """log Σ exp(s) of every row; the shift returns as a summand, so that no exponential overflows."""
    bugs = call.bugs
    lse = torch.where(mass != 0, acc.shift + torch.log(mass), -INF)
    if "lse_without_the_maximum" in bugs:
        lse = torch.where(mass != 0, torch.log(mass), -INF)
    if "lse_of_an_empty_row_is_zero" in bugs:
        lse = torch.where(mass != 0, lse, 0.0)
    return lse
