"""What the numpy subjects have in common: who they are, how a run is stored, the gradient of a broadcast bias."""

from __future__ import annotations

import platform
from collections.abc import Mapping

import numpy as np

from attnspec.certify.observation import Observation
from attnspec.pyspec import AttentionCall
from attnspec.pyspec.calls.formats import round_to


def numpy_identity() -> dict[str, str]:
    """The versions that results depend on."""
    return {"numpy": np.__version__, "python": platform.python_version()}


def operands(call: AttentionCall, raw: Mapping[str, np.ndarray] | None) -> dict[str, np.ndarray]:
    """query, key and value of the call, or the raw arrays that replace them."""
    return {n: np.asarray((raw or {}).get(n, getattr(call, n))) for n in ("query", "key", "value")}


def stored(call: AttentionCall, exact: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Float64 results cast once to the call's format; the log-sum-exp stays as it is."""
    return {n: t if n == "lse" else round_to(call.dtype, t) for n, t in exact.items()}


def observed(call: AttentionCall, exact: Mapping[str, np.ndarray]) -> Observation:
    """The run, as a campaign sees it."""
    tensors = stored(call, exact)
    return Observation(
        tensors=tensors,
        dtypes=dict.fromkeys(tensors, call.dtype),
        devices=dict.fromkeys(tensors, "cpu"),
        kernel="numpy",
    )


def bias_gradient(call: AttentionCall, grad_scores: np.ndarray) -> np.ndarray:
    """The score gradients [B,Hq,Q,K] summed over the axes along which the call's bias is broadcast."""
    assert call.bias is not None
    lost = tuple(n for n in range(4) if call.bias.shape[n] == 1 and call.score_shape[n] != 1)
    return np.asarray(grad_scores.sum(axis=lost, keepdims=True) if lost else grad_scores)
