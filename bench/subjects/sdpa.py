"""torch's scaled_dot_product_attention called as users call it, each function with a claim that torch may not keep.

certify run bench/subjects/sdpa.py:NAME --only PROPERTY
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from attnspec.certify.claims import Capabilities
from attnspec.pyspec import Ledger
from attnspec.pyspec.calls.formats import FORMATS
from attnspec.pyspec.oracle.ledger import flash, one_precision

SAME_WIDTHS = Capabilities(
    dtypes=tuple(FORMATS), bias_gradient=False, value_width_differs=False, zero_sizes=False,
    layouts=("contiguous", "heads_last", "padded", "offset"), encodings=("none", "bool", "additive"),
)  # fmt: skip


def claims(capabilities: Capabilities, ledger: Callable[[str], Ledger]) -> Callable[[Callable[..., Any]], Any]:
    """Attach a claim and its numerics to a function."""

    def attach(fn: Any) -> Any:
        fn.attnspec_capabilities, fn.attnspec_ledger = capabilities, ledger
        return fn

    return attach


def torch_flash(dtype: str) -> Ledger:
    """The numerics of torch's CPU flash kernel."""
    return flash(dtype, gradient_tile=32, key_tile=512)


@claims(replace(SAME_WIDTHS, encodings=("causal_flag",), bias=False), torch_flash)
def flash_causal(
    query: Tensor, key: Tensor, value: Tensor, is_causal: bool = False, scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """The flash kernel told causal by the flag, at any scale."""
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return F.scaled_dot_product_attention(
            query, key, value, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
        )  # fmt: skip


def forced(kernel: SDPBackend, name: str) -> Callable[..., Tensor]:
    """torch's function under one kernel."""

    def call(
        query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:  # fmt: skip
        with sdpa_kernel(kernel):
            return F.scaled_dot_product_attention(
                query, key, value, attn_mask=attn_mask, scale=scale, enable_gqa=enable_gqa
            )  # fmt: skip

    call.__qualname__ = name
    return call


# Taken to isolate poison, and to refuse what has no meaning.
flash_isolating = claims(replace(SAME_WIDTHS, isolates_poison=True), torch_flash)(
    forced(SDPBackend.FLASH_ATTENTION, "flash_isolating")
)
math_isolating = claims(replace(SAME_WIDTHS, isolates_poison=True), one_precision)(
    forced(SDPBackend.MATH, "math_isolating")
)
flash_refusing = claims(replace(SAME_WIDTHS, refuses_meaningless=True), torch_flash)(
    forced(SDPBackend.FLASH_ATTENTION, "flash_refusing")
)


@claims(replace(SAME_WIDTHS, gradients=False, grouped_heads=False, returns_lse=True), torch_flash)
def flash_with_lse(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, scale: float | None = None
) -> tuple[Tensor, Tensor]:
    """The flash operator itself, which returns the log-sum-exp as well."""
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros(attn_mask.shape, dtype=query.dtype).masked_fill(~attn_mask, -torch.inf)
    output, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, False, attn_mask=attn_mask, scale=scale
    )
    return output, lse


@claims(SAME_WIDTHS, torch_flash)
def least_rank_mask(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """The default kernel, the mask without its leading axes of length one: it broadcasts to the same."""
    while attn_mask is not None and attn_mask.dim() > 1 and attn_mask.shape[0] == 1:
        attn_mask = attn_mask[0]
    return F.scaled_dot_product_attention(query, key, value, attn_mask=attn_mask, scale=scale, enable_gqa=enable_gqa)


@claims(replace(SAME_WIDTHS, encodings=("causal_flag",), bias=False), torch_flash)
def causal_and_mask(
    query: Tensor, key: Tensor, value: Tensor, is_causal: bool = False, scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """The math kernel told causal twice, by the flag and by a mask."""
    mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril()
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=True, scale=scale, enable_gqa=enable_gqa
        )  # fmt: skip


@claims(replace(SAME_WIDTHS, encodings=("none", "bool"), bias=False), torch_flash)
def finite_minimum(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """The default kernel, hidden keys told by the most negative finite number of the type, as many models do."""
    if attn_mask is not None:
        low = torch.finfo(query.dtype).min
        attn_mask = torch.zeros(attn_mask.shape, dtype=query.dtype).masked_fill(~attn_mask, low)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=attn_mask, scale=scale, enable_gqa=enable_gqa)


@claims(Capabilities(dtypes=tuple(FORMATS)), one_precision)
def math_empty(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """The math kernel, taken to handle empty calls whatever the output gradient."""
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask=attn_mask, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
        )  # fmt: skip
