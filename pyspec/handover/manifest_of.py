"""Writing the manifest of a call, and the arrays that go with it."""

from __future__ import annotations

from typing import Any

import numpy as np

from attnspec.pyspec.calls.call import AttentionCall, CallError
from attnspec.pyspec.handover.manifest import BACKEND, DROPOUT_LOCATION, NUMERICAL, PER_HEAD, ROOT, WEIGHTS
from attnspec.pyspec.oracle.ledger import Ledger


def manifest_of(call: AttentionCall, ledger: Ledger | None = None, **facts: Any) -> dict[str, Any]:
    """The manifest of a call, for dense tensors in the order [B, H, length, width].

    ledger: where the numerics are declared; without one they are "backend_internal". facts: fields of the backend
    section that are known (framework_revision, ...); the others read "unobserved". Raises CallError for what a manifest
    cannot hold: scores other than dot products, and dropout that the subject draws.
    """
    if call.score.name != "dot":
        raise CallError(
            f"score = {call.score.name!r}: a manifest speaks of dot products; reduce the call exactly first"
        )
    if call.own_dropout is not None:
        raise CallError("own_dropout: a manifest speaks of a realised multiplier; give it in call.dropout")
    a, v = call.axes, call.visibility
    dtype = call.dtype

    def tensor(array: np.ndarray) -> dict[str, Any]:
        steps = [int(np.prod(array.shape[i + 1 :])) for i in range(array.ndim)]
        return {"shape": list(array.shape), "stride": steps, "dtype": dtype, "device": "cpu", "contiguous": True}

    known: dict[str, Any] = {
        "requested_backend": call.backend.requested,
        "selected_backend": call.backend.observed,
        "is_causal": call.encoding == "causal_flag",
        "external_mask_kind": "none" if call.encoding in ("none", "causal_flag") else call.encoding,
        **facts,
    }
    dropping = call.dropout is not None and call.dropout.training and call.dropout.probability > 0
    returned = {b: a for a, b in WEIGHTS.items()}[call.dropout.returned_weights if call.dropout else "none"]
    compute = "backend_internal" if ledger is None else ledger.compute
    numerics = dict.fromkeys(NUMERICAL, compute) | {"qkv_storage_dtype": dtype, "output_dtype": dtype}
    materialised = call.backend.materialised_weights
    root: dict[str, Any] = {
        "axes": {"B": a.batch, "Hq": a.query_heads, "Hkv": a.key_heads, "Q": a.queries, "K": a.keys,
                 "Dk": a.key_width, "Dv": a.value_width},
        "tensors": {
            "query": tensor(call.query),
            "key_physical": tensor(call.key),
            "value_physical": tensor(call.value),
            "head_map": list(call.head_map),
        },
        "visibility": {
            "semantic_polarity": "true_means_legal",
            "dtype": "bool",
            "shape": list(v.mask.shape),
            "query_valid_shape": None if v.query_valid is None else [a.batch, 1, a.queries, 1],
            "all_masked_row_policy": v.empty_rows,
        },
        "bias": None if call.bias is None else {"role": "finite_preference_only", "shape": list(call.bias.shape)},
        "score": {
            "compatibility_family": "dot",
            "scale_semantics": "multiplicative_inverse_temperature",
            "effective_logit_multiplier": call.scale_value,
            "scale_application_count": 1,
            "scale_width": a.key_width,
            "scale_override": None if call.scale is None else "given by the call",
        },
        "numerical": numerics,
        "dropout": {
            "training": bool(dropping),
            "p": call.dropout.probability if dropping and call.dropout else 0.0,
            "location": DROPOUT_LOCATION,
            "rng_provenance": "realised multiplier" if dropping else None,
            "returned_weights": returned,
        },
        "backend": {name: known.get(name, "unobserved") for name in BACKEND},
        "materialization": {
            "scores": "backend_internal",
            "probabilities": {"True": True, "False": False}.get(materialised, "backend_internal"),
        },
    }  # fmt: skip
    if call.softcap is not None:
        root["score"]["softcap"] = call.softcap
    for name, (role, _) in PER_HEAD.items():
        if getattr(call, name) is not None:
            root["score"][name] = {"role": role, "shape": [a.query_heads]}
    return {ROOT: root}


def arrays_of(call: AttentionCall) -> dict[str, np.ndarray]:
    """The arrays that go with `manifest_of(call)`."""
    valid = call.visibility.query_valid
    found = {
        "query": call.query,
        "key": call.key,
        "value": call.value,
        "visible": call.visibility.mask,
        "query_valid": None if valid is None else valid[:, None, :, None],
        "bias": call.bias,
        "dropout_multiplier": call.multiplier if call.dropout is not None and call.dropout.probability > 0 else None,
        "grad_output": call.grad_output,
        "sink": call.sink,
        "slopes": call.slopes,
    }
    return {name: array for name, array in found.items() if array is not None}
