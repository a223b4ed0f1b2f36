"""Functions that draw their own dropout in torch: torch's own, and ways to get it wrong."""

from __future__ import annotations

from typing import Any

import torch

from attnspec.certify.subjects.sampling import SamplingFunction


def _weights(query: Any, key: Any, scale: float | None) -> Any:
    return torch.softmax(query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale), dim=-1)


def plain(query: Any, key: Any, value: Any, dropout_p: float = 0.0, scale: float | None = None) -> Any:
    """Right: torch's dropout on normalised weights."""
    return torch.nn.functional.dropout(_weights(query, key, scale), dropout_p) @ value


def functional(query: Any, key: Any, value: Any, dropout_p: float = 0.0, scale: float | None = None) -> Any:
    """Right: torch's functional attention."""
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, dropout_p=dropout_p, scale=scale)


def before_softmax(query: Any, key: Any, value: Any, dropout_p: float = 0.0, scale: float | None = None) -> Any:
    """Keys dropped before the normaliser."""
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    gone = torch.rand_like(scores) < dropout_p
    return torch.softmax(scores.masked_fill(gone, -torch.inf), dim=-1).nan_to_num(0.0) @ value


def on_output(query: Any, key: Any, value: Any, dropout_p: float = 0.0, scale: float | None = None) -> Any:
    """Dropout of the output's entries instead of the weights'."""
    return torch.nn.functional.dropout(_weights(query, key, scale) @ value, dropout_p)


def keeps_with_p(query: Any, key: Any, value: Any, dropout_p: float = 0.0, scale: float | None = None) -> Any:
    """dropout_p read as the probability of keeping, but rescaled as if it were not."""
    weights = _weights(query, key, scale)
    keep = torch.rand_like(weights) < (dropout_p or 1.0)
    return (weights * keep / (1 - dropout_p)) @ value


class _FreshProduct(torch.autograd.Function):
    """Dropout and the product with the values, fused; the backward pass draws a mask of its own."""

    @staticmethod
    def forward(ctx: Any, weights: Any, value: Any, dropout_p: float) -> Any:
        ctx.save_for_backward(weights, value)
        ctx.dropout_p = dropout_p
        return (weights * (torch.rand_like(weights) >= dropout_p) / (1 - dropout_p)) @ value

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        weights, value = ctx.saved_tensors
        z = (torch.rand_like(weights) >= ctx.dropout_p) / (1 - ctx.dropout_p)
        return z * (grad @ value.mT), (weights * z).mT @ grad, None


def fresh_mask(query: Any, key: Any, value: Any, dropout_p: float = 0.0, scale: float | None = None) -> Any:
    """The backward pass draws a mask of its own."""
    return _FreshProduct.apply(_weights(query, key, scale), value, dropout_p)


def subject(function: Any) -> SamplingFunction:
    """The function as a subject."""
    return SamplingFunction(function, f"tests.certify.sampling_functions:{function.__name__}")
