"""Dense masks: booleans of either polarity, key padding, and numbers added to the scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from attnspec.pyspec.calls.encodings.base import Encoding, Request, Shape
from attnspec.pyspec.calls.formats import get_format, round_to


def _same(r: Request) -> np.ndarray:
    return np.array(r.stored)


def _as_is(payload: Any, shape: Shape) -> np.ndarray:
    return np.broadcast_to(np.asarray(payload, dtype=bool), shape)


def _blocked(r: Request) -> np.ndarray:
    """[Q, K] where all batch rows and heads agree, else [B·Hq, Q, K]."""
    b, h, q, k = r.shape
    flat = r.visible.reshape(b * h, q, k)
    if b * h and (flat == flat[:1]).all():
        return ~flat[0]
    return ~flat


def _not_blocked(payload: np.ndarray, shape: Shape) -> np.ndarray:
    b, h, q, k = shape
    return np.broadcast_to(~payload, shape) if payload.ndim == 2 else ~payload.reshape(b, h, q, k)


def _ignored_keys(r: Request) -> np.ndarray:
    """[B, K]: keys that the first query of the first head does not see."""
    b, h, q, k = r.shape
    return ~r.visible[:, 0, 0] if h and q else np.zeros((b, k), dtype=bool)


def _kept_keys(payload: np.ndarray, shape: Shape) -> np.ndarray:
    return np.broadcast_to(~payload[:, None, None, :], shape)


def _bias(r: Request) -> np.ndarray:
    return np.zeros((1, 1, 1, 1)) if r.bias is None else r.bias


def _additive(r: Request) -> np.ndarray:
    return np.where(r.stored, _bias(r), -np.inf)


def _not_minus_infinity(payload: np.ndarray, shape: Shape) -> np.ndarray:
    return np.broadcast_to(payload != -np.inf, shape)


def _penalised(r: Request) -> tuple[np.ndarray, float]:
    sentinel = r.options.get("sentinel", -get_format(r.dtype).largest)
    return np.where(r.stored, _bias(r), sentinel), float(sentinel)


def _above_sentinel(payload: tuple[np.ndarray, float], shape: Shape) -> np.ndarray:
    values, sentinel = payload
    return np.broadcast_to(values != sentinel, shape)


def compose_additive(dtype: str, *terms: np.ndarray) -> np.ndarray:
    """The sum of additive masks as the format computes it, term by term; two finite sentinels overflow to -inf."""
    total = terms[0]
    for term in terms[1:]:
        with np.errstate(over="ignore"):
            total = round_to(dtype, total + term)
    return total


def leaked_mass(visible: np.ndarray, scores: np.ndarray, sentinel: float) -> np.ndarray:
    """Weight [..., Q] that hidden keys take when `sentinel` is added to their scores instead of removing them.

    In real arithmetic; zero only where nothing is hidden or nothing is left. scores [..., Q, K] without the mask.
    """
    told = np.where(visible, scores, scores + sentinel)
    if told.shape[-1] == 0:
        return np.zeros(told.shape[:-1])
    parts = np.exp(told - told.max(axis=-1, keepdims=True))
    return np.asarray((parts * ~visible).sum(axis=-1) / parts.sum(axis=-1))


SDPA_BOOL = Encoding(
    name="sdpa_bool",
    polarity="true_means_visible",
    exact=True,
    expresses="any relation",
    make=_same,
    read=_as_is,
)
MHA_BLOCKED_BOOL = Encoding(
    name="mha_blocked_bool",
    polarity="true_means_hidden",
    exact=True,
    expresses="any relation, as [Q, K] where batch rows and heads agree, else [B·Hq, Q, K]",
    make=_blocked,
    read=_not_blocked,
)
MHA_KEY_PADDING = Encoding(
    name="mha_key_padding",
    polarity="true_means_hidden",
    exact=True,
    expresses="keys hidden from every query and head of a batch row, as [B, K]",
    make=_ignored_keys,
    read=_kept_keys,
)
ADDITIVE = Encoding(
    name="additive",
    polarity="zero_or_bias_means_visible, minus_infinity_means_hidden",
    exact=True,
    expresses="any relation, with a finite bias on its visible edges",
    make=_additive,
    read=_not_minus_infinity,
    carries_bias=True,
)
ADDITIVE_FINITE_SENTINEL = Encoding(
    name="additive_finite_sentinel",
    polarity="zero_or_bias_means_visible, sentinel_means_unlikely",
    exact=False,
    expresses="any relation, approximately: a hidden key keeps the weight exp(score + sentinel) / l",
    make=_penalised,
    read=_above_sentinel,
    carries_bias=True,
    options=("sentinel",),
)
