"""The record of a planted bug."""

from __future__ import annotations

from dataclasses import dataclass

KINDS = (
    "values", "gradient_only", "lse_only", "inputs", "tile_edge", "rectangular", "mask_axis", "visibility",
    "large_logits", "low_precision", "grouped_heads", "empty_rows", "dropout", "dropout_backward", "scale",
    "layout", "head_dim_tail", "split_merge", "encoding", "softcap", "window", "segments", "bias", "zero_sizes",
    "contract", "determinism", "hidden_keys", "size_limits",
)  # fmt: skip

FEATURES = (
    "gradients", "bias", "bias_gradient", "multiplier", "grouped_heads", "head_map", "window", "segments",
    "softcap", "causal", "lower_right", "mask", "additive_mask", "lse", "layout", "inputs_after", "nan_in_hidden",
    "refusals", "repeat_calls", "bias_gradient_alone", "memory_around_inputs",
)  # fmt: skip

DTYPES = {
    "any": ("float64", "float32", "bfloat16", "float16"),
    "wide": ("float64", "float32"),
    "low": ("bfloat16", "float16"),
    "float32": ("float32",),
    "float16": ("float16",),
}


@dataclass(frozen=True)
class Bug:
    """One planted bug: a switch of the zoo kernel.

    kind: what hides it, one of KINDS. reports: public reports it is modelled on, as repository#number (PR alike);
    empty where it is a classic with no single report. dtypes: storage types in which it can change a bit and is a
    bug under the declared numerics. needs: features a call, or what is looked at, must have, from FEATURES.
    equivalent: why it can change no bit, or None.
    """

    name: str
    kind: str
    reports: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = DTYPES["any"]
    needs: frozenset[str] = frozenset()
    equivalent: str | None = None


def bug(
    name: str, kind: str, reports: str = "", *, needs: str = "", acts: str = "any", equivalent: str | None = None
) -> Bug:
    """A Bug from blank-separated reports and features. Raises ValueError on an unknown kind or feature."""
    features = frozenset(needs.split())
    if kind not in KINDS or not features <= frozenset(FEATURES):
        raise ValueError(f"{name}: unknown kind {kind!r} or feature in {sorted(features)}")
    return Bug(name, kind, tuple(reports.split()), DTYPES[acts], features, equivalent)
