"""What holds of scores: shifts cancel, the scale is applied once, causal masks align, large logits survive."""

from __future__ import annotations

import numpy as np

from attnspec.certify.claims import requires
from attnspec.certify.trials.property import MODIFIERS, Trials, claim
from attnspec.certify.trials.trial import Trial
from attnspec.pyspec import AttentionCall, Visibility
from attnspec.pyspec.calls.cut import take, take_heads
from attnspec.pyspec.calls.formats import get_format, round_to
from attnspec.pyspec.visibility import lower_right, upper_left
from attnspec.strategies.derived import call_rng, take_keys, take_queries, whole_bias, with_mask


@claim(
    "bias-shift",
    "Adding a number to every score of a row changes nothing but its LSE.",
    theorem="bias_row_shift_invariance",
    also=("shift_invariance", "common_factor_cancels"),
    prepare=whole_bias,
    needs=requires("bias"),
)
def bias_shift(call: AttentionCall) -> Trials:
    if call.bias is None:
        return "the call has no bias"
    shift = call_rng(call, "shift").integers(-8, 9, (*call.score_shape[:3], 1)).astype(np.float64)
    shape = np.broadcast_shapes(call.bias.shape, shift.shape)
    moved = np.broadcast_to(call.bias, shape) + shift
    if not np.array_equal(round_to(call.dtype, moved), moved):
        return "the shifted bias is not exact in this format"
    yield Trial(call.but(bias=moved), against=call, tensors=("output", "grad_query", "grad_key", "grad_value"))


def _other_scale(call: AttentionCall) -> AttentionCall:
    options = (0.5, 1.0, 0.0625, -0.5, 0.0, 2.0)
    return call.but(scale=float(call_rng(call, "scale").choice(options)))


@claim(
    "scale",
    "The scale multiplies the scores once, whatever its sign.",
    theorem="scale_placements_equal",
    keep=MODIFIERS,
    prepare=_other_scale,
    needs=requires("scale"),
    resembles=("dfdx#171", "maxtext#1370"),
)
def scale(call: AttentionCall) -> Trials:
    yield Trial(call)
    doubled = 2.0 * call.query
    if call.scale is None or (np.abs(doubled) > get_format(call.dtype).largest).any():
        return None
    # The same scores from twice the query and half the scale; the query gradient halves with the scale.
    other = call.but(query=doubled, scale=call.scale / 2)
    yield Trial(other, against=call, tensors=("output", "grad_key", "grad_value"))
    return None


def _causal(call: AttentionCall) -> AttentionCall:
    """In some calls the first row alone, which many kernels take for the last; in some, logits beyond a finite mask."""
    kind = call_rng(call, "kind").random()
    if kind < 0.25 and 0 not in call.score_shape:
        call = take_queries(call, np.array([0]))
    elif kind < 0.45:
        call = _large(call) or call
    return _flagged(call)


def _flagged(call: AttentionCall) -> AttentionCall:
    """The causal mask of the upper left corner in place of the call's own, passed as the flag."""
    mask = upper_left(call.axes.queries, call.axes.keys)[None, None]
    return with_mask(call.but(bias=None, encoding="bool"), mask).but(encoding="causal_flag")


@claim(
    "causal-alignment",
    "The causal flag aligns the diagonal to the upper left corner, also when lengths differ.",
    theorem="upper_left_eq_lower_right_iff",
    also=("causal_rows_never_read_ahead", "causal_offset_shift", "window_is_causal"),
    keep=MODIFIERS,
    prepare=_causal,
    needs=requires("causal_flag"),
    resembles=("flash-attention#402", "SageAttention#26", "mlx#2835"),
)
def causal_alignment(call: AttentionCall) -> Trials:
    yield Trial(call)


def _far(call: AttentionCall) -> AttentionCall | None:
    """One batch, one head and a few features of the call, its rows and keys repeated to more than 128 of each."""
    a = call.axes
    if 0 in call.score_shape:
        return None
    rng = call_rng(call, "lengths")
    rows, keys = int(rng.choice([129, 144, 160])), int(rng.choice([129, 144, 160, 200, 257]))
    one = call.but(visibility=Visibility(np.ones((1, 1, 1, 1), dtype=bool)), bias=None, encoding="bool", dropout=None)
    one = take_heads(take(one, "batch", [0]), [0])
    for axis in ("key_width", "value_width"):
        one = take(one, axis, np.arange(min(4, getattr(a, axis))))
    return _flagged(take_keys(take_queries(one, np.arange(rows) % a.queries), np.arange(keys) % a.keys))


@claim(
    "causal-far-rows",
    "A causal mask aligns the diagonal on rows and keys beyond the 128th as on the first ones.",
    theorem="causal_rows_never_read_ahead",
    also=("causal_offset_shift",),
    keep=("softcap", "sink"),
    prepare=_far,
    needs=requires("causal_flag"),
    small=True,
    resembles=("flash-attention#402",),
)
def causal_far_rows(call: AttentionCall) -> Trials:
    yield Trial(call)


def _lower_right_mask(call: AttentionCall) -> AttentionCall:
    a = call.axes
    return with_mask(call, lower_right(a.queries, a.keys)[None, None])


@claim(
    "causal-lower-right",
    "A lower-right causal mask is honoured on rectangles, rows above the diagonal's start being empty.",
    theorem="lower_right_empty_rows",
    also=("upper_left_eq_lower_right_iff", "lower_right_last_query_sees_all"),
    keep=MODIFIERS,
    prepare=_lower_right_mask,
    needs=requires("empty_rows"),
    resembles=("flash-attention#402", "jax#24491"),
)
def causal_lower_right(call: AttentionCall) -> Trials:
    yield Trial(call)


def _large(call: AttentionCall) -> AttentionCall | None:
    a = call.axes
    if 0 in (*call.score_shape, a.key_width):
        return None
    rng = call_rng(call, "large")
    query, key = call.query.copy(), call.key.copy()
    scale = call.scale_value or 1.0
    if rng.random() < 0.25:
        # All of them below any finite number that a kernel may start its maximum from.
        root = round_to(call.dtype, np.sqrt(rng.uniform(70_000, 90_000, 1) / abs(scale)))
        query[..., 0], key[..., 0] = root, np.copysign(root, -scale)
        return call.but(query=query, key=key)
    # One feature carries logits far past the range of exp, of both signs, within the format's range.
    size = float(rng.choice([100.0, 200.0] if call.dtype == "float16" else [100.0, 1000.0, 8000.0]))
    root = np.sqrt(size / abs(scale))
    query[..., 0] = round_to(call.dtype, root * rng.choice([-1.0, 1.0], query.shape[:-1]))
    key[..., 0] = round_to(call.dtype, root * rng.choice([-1.0, -0.5, 0.5, 1.0], key.shape[:-1]))
    return call.but(query=query, key=key)


@claim(
    "large-logits",
    "Logits far beyond the range of exp, of both signs, give finite and right weights and gradients.",
    theorem="shift_invariance",
    also=("common_factor_cancels", "online_merge_equals_direct", "online_merge_any_tree"),
    keep=MODIFIERS,
    prepare=_large,
    resembles=("flashinfer#4267", "pytorch#119131", "trl#7181"),
)
def large_logits(call: AttentionCall) -> Trials:
    yield Trial(call)
