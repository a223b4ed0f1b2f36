"""The numpy reference with one visibility bug each: `certify run tests/certify/planted_visibility.py:NAME --only ID`.

A bug shows only on the masks that it is about, read off the relation; on all others the subject is right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from attnspec.certify.claims import Capabilities
from attnspec.certify.conventions.by_call import call_program
from attnspec.certify.conventions.program import Program
from attnspec.certify.observation import Observation
from attnspec.certify.subjects.numpy_reference import NumpyReference
from attnspec.pyspec import AttentionCall, Ledger, Visibility
from attnspec.pyspec import visibility as vis
from attnspec.pyspec.calls.cut import with_explicit_mask
from attnspec.strategies.derived import with_mask


@dataclass(frozen=True)
class WrongVisibility:
    """The numpy reference, run on another call than it was asked for."""

    name: str
    wrong: Callable[[AttentionCall], AttentionCall]
    device: str = "cpu"
    claims: Capabilities | None = None

    @property
    def capabilities(self) -> Capabilities:
        return self.claims or NumpyReference().capabilities

    def identity(self) -> dict[str, str]:
        return {**NumpyReference().identity(), "planted": self.name}

    def ledger(self, dtype: str) -> Ledger:
        return NumpyReference().ledger(dtype)

    def run(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Observation:
        return NumpyReference().run(self.wrong(call), raw)

    def program(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Program:
        return call_program(
            call,
            raw,
            next(n for n, x in globals().items() if x is self),
            imports=("from tests.certify.planted_visibility import *",),
        )


def _polarity(call: AttentionCall) -> AttentionCall:
    """True is taken to mean hidden, in boolean masks only."""
    return with_mask(call, ~call.visible) if call.encoding == "bool" else call


def _upper_left(call: AttentionCall) -> AttentionCall:
    """A lower-right triangle is taken to start at the upper left."""
    q, k = call.axes.queries, call.axes.keys
    if q != k and (call.visible == vis.lower_right(q, k)).all():
        return with_mask(call, np.broadcast_to(vis.upper_left(q, k), call.score_shape))
    return call


def _band(visible: np.ndarray) -> tuple[int, int, int] | None:
    """(left, right, offset = 0) of a window that shows exactly this relation, or None."""
    q, k = visible.shape
    i, j = np.nonzero(visible)
    if not len(i) or visible.all():
        return None
    left, right = int((i - j).max()), int((j - i).max())
    return (left, right, 0) if (vis.window(q, k, left, right) == visible).all() else None


def _window_off_by_one(call: AttentionCall) -> AttentionCall:
    """The key at the far left of a window is left out."""
    if 0 in call.score_shape or not (call.visible == call.visible[:1, :1]).all():
        return call
    found = _band(call.visible[0, 0])
    if found is None:
        return call
    shorter = vis.window(call.axes.queries, call.axes.keys, found[0] - 1, found[1])
    return with_mask(call, np.broadcast_to(shorter, call.score_shape))


def _leaking_segments(call: AttentionCall) -> AttentionCall:
    """Each query also sees the last key before the first one that it may see: the neighbour's."""
    visible = call.visible
    before = np.zeros_like(visible)
    before[..., :-1] = visible[..., 1:]
    seen_before = np.logical_or.accumulate(visible, axis=-1)
    return with_mask(call, visible | (before & ~seen_before))


def _bias_after_mask(call: AttentionCall) -> AttentionCall:
    """Scores are masked first; a positive bias that is added after brings a key back."""
    if call.bias is None:
        return call
    return with_mask(call, call.visible | (np.broadcast_to(call.bias, call.score_shape) > 0))


def _causal_over_prefix(call: AttentionCall) -> AttentionCall:
    """A prefix mask gets the causal flag as well, which hides prefix keys from earlier queries."""
    q, k = call.axes.queries, call.axes.keys
    for length in range(1, k + 1):
        for offset in {0, k - q, *range(k)}:
            if (call.visible == vis.prefix(q, k, length, offset)).all():
                return with_mask(call, np.broadcast_to(vis.causal(q, k, offset), call.score_shape))
    return call


def _siblings(call: AttentionCall) -> AttentionCall:
    """Candidates of a tree are taken in the order of their slots: a branch reads its sibling."""
    q, k = call.axes.queries, call.axes.keys
    if q > k or k == 0:
        return call
    triangle = vis.lower_right(q, k)
    inside = not (call.visible & ~triangle).any()
    own = np.arange(k - q, k)
    if inside and call.visible[..., : k - q].all() and call.visible[..., np.arange(q), own].all():
        return with_mask(call, np.broadcast_to(triangle, call.score_shape))
    return call


def _padding_on_queries(call: AttentionCall) -> AttentionCall:
    """A key padding mask is applied to the rows as well: queries at padded positions see nothing."""
    mask, n = call.visibility.mask, call.axes.queries
    if mask.shape[2] != 1 or mask.shape[3] != n or n != call.axes.keys:
        return call
    return with_mask(call, call.visible & np.swapaxes(np.broadcast_to(mask, call.score_shape), 2, 3))


def _sentinel(size: float) -> Callable[[AttentionCall], AttentionCall]:
    def penalised(call: AttentionCall) -> AttentionCall:
        """Hidden scores are lowered by a finite number; rows that see nothing stay empty."""
        row = call.visible.any(axis=-1, keepdims=True)
        bias = np.zeros((1, 1, 1, 1)) if call.bias is None else call.bias
        lowered = np.where(call.visible, bias, bias - size)
        kept = with_explicit_mask(call).but(dtype="float64", bias=lowered, encoding="additive")
        return kept.but(visibility=Visibility(np.broadcast_to(row, call.score_shape).copy()))

    return penalised


@dataclass(frozen=True)
class WithSentinel(WrongVisibility):
    """Runs in float64, so the result is rounded back to the call's dtype; no bias gradient of its own shape."""

    def run(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Observation:
        from attnspec.pyspec.calls.formats import round_to

        seen = NumpyReference().run(self.wrong(call), raw)
        kept = {n: t if n == "lse" else round_to(call.dtype, t) for n, t in seen.tensors.items() if n != "grad_bias"}
        return replace(seen, tensors=kept, dtypes=dict.fromkeys(kept, call.dtype))


_NO_BIAS_GRADIENT = replace(NumpyReference().capabilities, bias_gradient=False)

unplanted = WrongVisibility("unplanted", lambda call: call)
polarity_flipped = WrongVisibility("polarity flipped", _polarity)
upper_left_for_lower_right = WrongVisibility("upper left for lower right", _upper_left)
window_off_by_one = WrongVisibility("window off by one", _window_off_by_one)
segments_leak = WrongVisibility("segments leak", _leaking_segments)
bias_after_mask = WrongVisibility("bias after mask", _bias_after_mask)
prefix_with_causal_flag = WrongVisibility("prefix with a causal flag", _causal_over_prefix)
siblings_leak = WrongVisibility("siblings leak", _siblings)
key_padding_on_queries = WrongVisibility("key padding on queries", _padding_on_queries)
sentinel_minus_1e4 = WithSentinel("sentinel -1e4", _sentinel(1e4), claims=_NO_BIAS_GRADIENT)

PLANTED = {
    "polarity_flipped": "mask-polarity",
    "upper_left_for_lower_right": "cached-decoding",
    "window_off_by_one": "window-law",
    "segments_leak": "segments-isolated",
    "bias_after_mask": "bias-never-revives",
    "prefix_with_causal_flag": "prefix-law",
    "siblings_leak": "branches-alone",
    "key_padding_on_queries": "key-padding-keys-only",
    "sentinel_minus_1e4": "hidden-is-absent",
}
