"""A peer's rule: named cases, each a predicate on a kernel, and what the project's interface can express."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tests.mutants.bug import Bug
from tests.mutants.calls import Tensors, ZooCall, run
from tests.mutants.kernel import attention

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def words(text: str) -> frozenset[str]:
    """The blank-separated words of a text."""
    return frozenset(text.split())


class Refused(Exception):
    """The kernel raised where the case needs an answer."""


@dataclass(frozen=True)
class Kernel:
    """The zoo's kernel with planted bugs switched on; none for the correct one."""

    bugs: frozenset[str] = frozenset()

    def run(self, call: ZooCall) -> Tensors:
        """Output, LSE, gradients and memory afterwards. Raises Refused where the kernel refuses the call."""
        shown = run(call, self.bugs)
        if isinstance(shown, str):
            raise Refused(shown)
        return shown

    @property
    def function(self) -> Callable[..., Any]:
        """The kernel as a plain differentiable function."""
        return partial(attention, bugs=self.bugs)


Check = Callable[[Kernel], "str | None"]


@dataclass(frozen=True, eq=False)
class Case:
    """One test of a peer: `check` answers None when the kernel is accepted, else in what it is rejected."""

    name: str
    check: Check


@dataclass(frozen=True)
class Rule:
    """How one project accepts an attention kernel.

    source: project, file and version that the facts were read in. statement: the rule in our words. scaled: what
    was made smaller or left out, and why. dtypes: storage types that the project runs it in. features: what its
    interface can say (names of `tests.mutants.bug.FEATURES` and of `NEEDS_MORE` below). cases: of a dtype and seed,
    in the order in which they run.
    """

    id: str
    title: str
    source: str
    statement: str
    scaled: str
    dtypes: tuple[str, ...]
    features: frozenset[str]
    cases: Callable[[str, int], tuple[Case, ...]]


def verdict(cases: tuple[Case, ...], kernel: Kernel) -> tuple[int, str] | None:
    """(number of the first rejecting case counted from 1, its name and reason), or None when all accept.

    An exception of the kernel fails a peer's test as well.
    """
    for number, case in enumerate(cases, 1):
        try:
            reason = case.check(kernel)
        except Exception as error:
            reason = f"raised {type(error).__name__}"
        if reason is not None:
            return number, f"{case.name}: {reason}"
    return None


# What a bug needs beyond `Bug.needs`: a scale argument, value width ≠ query width, any way to hide a key, a way to
# empty a row, zero lengths, lengths or widths that are no multiple of a tile. Keyed by kind, then by name.
KIND_NEEDS = {"zero_sizes": "zero_sizes", "segments": "segments", "window": "window", "softcap": "softcap"}
NEEDS_MORE = {
    "user_scale_ignored": "scale",
    "user_scale_applied_twice": "scale",
    "zero_scale_taken_as_missing": "scale",
    "sign_of_scale_lost": "scale",
    "query_gradient_uses_the_default_scale": "scale",
    "scale_taken_from_the_value_width": "value_width",
    "value_width_taken_from_the_query_width": "value_width",
    "maximum_taken_before_hiding": "hiding",
    "hidden_tile_erases_the_earlier_keys": "hiding",
    "rows_whose_first_tile_is_hidden_give_nan": "hiding",
    "hidden_scores_set_to_minus_ten_thousand": "hiding",
    "hidden_scores_set_to_minus_1e10_in_storage": "hiding",
    "hidden_keys_stay_in_the_denominator": "hiding",
    "backward_forgets_every_mask": "hiding",
    "merge_skips_the_second_part_beside_an_empty_first": "hiding",
    "merge_of_two_empty_parts_gives_nan": "empty_rows",
    "empty_row_outputs_nan": "empty_rows",
    "empty_row_outputs_the_mean_of_the_values": "empty_rows",
    "empty_row_poisons_its_tile": "empty_rows",
    "backward_empty_rows_unguarded": "empty_rows",
    "lse_of_an_empty_row_is_zero": "empty_rows",
    "output_cut_after_the_last_row_with_a_key": "empty_rows",
    "last_channels_of_an_odd_width_dropped": "tails",
    "last_channels_of_an_odd_value_width_unwritten": "tails",
    "last_key_of_a_partial_tile_dropped": "tails",
    "last_partial_key_tile_skipped": "tails",
    "pad_keys_scored_zero": "tails",
    "keys_past_the_end_attended": "tails",
    "pad_values_hold_nan": "tails",
    "backward_pad_keys_hold_nan": "tails",
    "backward_pad_keys_scored_zero": "tails",
    "query_pad_rows_hold_nan_in_backward": "tails",
    "last_partial_query_tile_unwritten": "tails",
    "bias_gradient_missing_in_the_partial_key_tile": "tails",
}


def needs_of(bug: Bug) -> frozenset[str]:
    """Everything an interface must be able to say for the bug to show."""
    more = {NEEDS_MORE.get(bug.name), KIND_NEEDS.get(bug.kind)} - {None}
    return bug.needs | frozenset(m for m in more if m is not None)


def beyond(rule: Rule, bug: Bug, dtype: str) -> str | None:
    """Why the bug is no business of the rule: its dtype, or what the interface cannot say; None when it is."""
    if dtype not in rule.dtypes:
        return f"not run in {dtype}"
    missing = sorted(needs_of(bug) - rule.features)
    return f"no {', '.join(missing)}" if missing else None


def compared(name: str, call: ZooCall, judge: Callable[[Tensors], str | None]) -> Case:
    """A case that runs one call and judges what it shows."""
    return Case(name, lambda kernel: judge(kernel.run(call)))


def largest(x: Tensor) -> float:
    """The largest absolute entry as float; NaN wins, nothing counts as zero."""
    return float(x.double().abs().max()) if x.numel() else 0.0


def not_close(got: Tensor, want: Tensor, rtol: float, atol: float) -> bool:
    """Is some |got - want| > atol + rtol·|want|, or a NaN on one side?"""
    return got.shape != want.shape or not torch.allclose(got.double(), want.double(), rtol=rtol, atol=atol)
