"""The attention sink: one extra logit per query head that takes mass and carries no value, as one more key.

A call with a sink equals the call with key row K added: key 0, value 0, visible to every row, its score the sink's
logit, given as a bias. So a row without any other key is defined: output 0, LSE the logit. A softcap acts on query·key
before biases are added, and therefore never on the sink's logit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np

from attnspec.pyspec.calls.call import AttentionCall, Visibility
from attnspec.pyspec.domain import Domain

LEAN_MODULES = ("AttnSpec.Sink",)

M = TypeVar("M")


def extended(call: AttentionCall) -> AttentionCall:
    """The equal call without a sink and with one more key, its bias stored in full.

    Every row sees the added key, those of invalid queries too: their output and gradients are zero as before.
    Lean: AttnSpec.Params.extended, AttnSpec.Inputs.extended.
    """
    if call.sink is None:
        return call
    b, hq, q, k = call.score_shape
    bias = np.zeros((b, hq, q, k + 1))
    if call.bias is not None:
        bias[..., :k] = call.bias
    bias[..., k] = call.sink[None, :, None]
    dropout = None
    if call.dropout is not None:
        given = np.broadcast_to(call.dropout.multiplier, (b, hq, q, k))
        dropout = replace(call.dropout, multiplier=np.concatenate([given, np.ones((b, hq, q, 1))], axis=-1))
    return call.but(
        sink=None,
        key=_one_more(call.key),
        value=_one_more(call.value),
        bias=bias,
        visibility=Visibility(np.concatenate([call.visible, np.ones((b, hq, q, 1), dtype=bool)], axis=-1)),
        dropout=dropout,
        encoding="additive",
    )


def extended_tangent(call: AttentionCall, tangent: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The tangent of `extended(call)` that a tangent of the call means; "sink" [Hq] moves the logits."""
    moved = {name: _one_more(t) if name in ("key", "value") else t for name, t in tangent.items() if name != "sink"}
    bias = np.zeros((*call.score_shape[:3], call.axes.keys + 1))
    if "bias" in tangent:
        bias[..., :-1] = tangent["bias"]
    if "sink" in tangent:
        bias[..., -1] = tangent["sink"][None, :, None]
    return {**moved, "bias": bias}


def restored(dom: Domain[M], call: AttentionCall, tensors: dict[str, M]) -> dict[str, M]:
    """The call's tensors from those of its extension: the added key's go, the gradient of its logits remains.

    grad_bias [B,Hq,Q,K] and grad_sink [B,Hq,Q,1] are the two parts of the extension's grad_bias, not summed yet.
    """
    keys = call.axes.keys
    found = dict(tensors)
    if "weights" in found:
        found["weights"] = dom.cut(found["weights"], 3, 0, keys)
    if "grad_bias" in found:
        for name in ("grad_key", "grad_value"):
            found[name] = dom.cut(found[name], 2, 0, keys)
        whole = found.pop("grad_bias")
        found["grad_bias"], found["grad_sink"] = dom.cut(whole, 3, 0, keys), dom.cut(whole, 3, keys, keys + 1)
    return found


def _one_more(rows: np.ndarray) -> np.ndarray:
    return np.concatenate([rows, np.zeros((*rows.shape[:2], 1, rows.shape[3]))], axis=2)
