"""What holds of scores: shifts cancel, the scale is applied once, causal masks align, large logits survive."""

from __future__ import annotations

import numpy as np

from attnspec.certify.properties import needs
from attnspec.certify.properties.agree import agree, joined
from attnspec.certify.properties.model import Bench, Outcome, Property, call_rng, register
from attnspec.certify.properties.surgery import take_keys, take_queries, whole_bias, with_mask
from attnspec.pyspec import AttentionCall, Visibility
from attnspec.pyspec.calls.formats import get_format, round_to
from attnspec.pyspec.visibility import lower_right, upper_left


def _shifted(call: AttentionCall, bench: Bench) -> Outcome:
    if call.bias is None:
        return Outcome(skipped="the call has no bias")
    shift = call_rng(call, "shift").integers(-8, 9, (*call.score_shape[:3], 1)).astype(np.float64)
    shape = np.broadcast_shapes(call.bias.shape, shift.shape)
    moved = np.broadcast_to(call.bias, shape) + shift
    if not np.array_equal(round_to(call.dtype, moved), moved):
        return Outcome(skipped="the shifted bias is not exact in this format")
    other = call.but(bias=moved)
    return agree(other, bench, tensors=("output", "grad_query", "grad_key", "grad_value"), against=call)


def _other_scale(call: AttentionCall) -> AttentionCall:
    options = (0.5, 1.0, 0.0625, -0.5, 0.0, 2.0)
    return call.but(scale=float(call_rng(call, "scale").choice(options)))


def _scale(call: AttentionCall, bench: Bench) -> Outcome:
    direct = agree(call, bench)
    doubled = 2.0 * call.query
    if call.scale is None or (np.abs(doubled) > get_format(call.dtype).largest).any():
        return direct
    # The same scores from twice the query and half the scale; the query gradient halves with the scale.
    other = call.but(query=doubled, scale=call.scale / 2)
    moved = agree(other, bench, tensors=("output", "grad_key", "grad_value"), against=call)
    return joined(direct, moved)


def _causal(call: AttentionCall) -> AttentionCall:
    """In some calls the first row alone, which many kernels take for the last; in some, logits beyond a finite mask."""
    kind = call_rng(call, "kind").random()
    if kind < 0.25 and 0 not in call.score_shape:
        call = take_queries(call, np.array([0]))
    elif kind < 0.45:
        call = _large(call) or call
    return _flagged(call)


def _flagged(call: AttentionCall) -> AttentionCall:
    """The causal mask of the upper left corner in place of the call's own, told by the flag."""
    mask = upper_left(call.axes.queries, call.axes.keys)[None, None]
    return with_mask(call.but(bias=None, encoding="bool"), mask).but(encoding="causal_flag")


def _far(call: AttentionCall) -> AttentionCall | None:
    """One batch, one head and a few features of the call, its rows and keys repeated to more than 128 of each."""
    a = call.axes
    if 0 in call.score_shape:
        return None
    rng = call_rng(call, "lengths")
    rows, keys = int(rng.choice([129, 144, 160])), int(rng.choice([129, 144, 160, 200, 257]))
    head = slice(call.head_map[0], call.head_map[0] + 1)
    one = call.but(
        query=call.query[:1, :1, :, :4],
        key=call.key[:1, head, :, :4],
        value=call.value[:1, head, :, :4],
        grad_output=None if call.grad_output is None else call.grad_output[:1, :1, :, :4],
        visibility=Visibility(np.ones((1, 1, 1, 1), dtype=bool)),
        head_map=(0,),
        bias=None,
        encoding="bool",
        dropout=None,
        sink=None if call.sink is None else call.sink[:1],
    )
    return _flagged(take_keys(take_queries(one, np.arange(rows) % a.queries), np.arange(keys) % a.keys))


def _upper_left(call: AttentionCall, bench: Bench) -> Outcome:
    return agree(call, bench)


def _lower_right_mask(call: AttentionCall) -> AttentionCall:
    a = call.axes
    return with_mask(call, lower_right(a.queries, a.keys)[None, None])


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


def _large_logits(call: AttentionCall, bench: Bench) -> Outcome:
    return agree(call, bench)


register(
    Property(
        id="bias-shift",
        claim="Adding a number to every score of a row changes nothing but its LSE.",
        theorem="bias_row_shift_invariance",
        check=_shifted,
        prepare=whole_bias,
        needs=needs.bias,
        also=(
            "shift_invariance",
            "common_factor_cancels",
        ),
    )
)
register(
    Property(
        id="scale",
        claim="The scale multiplies the scores once, whatever its sign and wherever it is applied.",
        theorem="scale_placements_equal",
        check=_scale,
        modifiers=True,
        prepare=_other_scale,
        needs=needs.any_scale,
        catches=("dfdx#171", "maxtext#1370"),
    )
)
register(
    Property(
        id="causal-alignment",
        claim="The causal flag aligns the diagonal to the upper left corner, also when lengths differ.",
        theorem="upper_left_eq_lower_right_iff",
        check=_upper_left,
        modifiers=True,
        prepare=_causal,
        needs=needs.causal_flag,
        catches=("flash-attention#402", "SageAttention#26", "mlx#2835"),
        also=(
            "causal_rows_never_read_ahead",
            "causal_offset_shift",
            "window_is_causal",
        ),
    )
)
register(
    Property(
        id="causal-far-rows",
        claim="A causal mask aligns the diagonal on rows and keys beyond the 128th as on the first ones.",
        theorem="causal_rows_never_read_ahead",
        check=_upper_left,
        modifiers=True,
        prepare=_far,
        needs=needs.causal_flag,
        small=True,
        catches=("flash-attention#402",),
        also=("causal_offset_shift",),
    )
)
register(
    Property(
        id="causal-lower-right",
        claim="A lower-right causal mask is honoured on rectangles, rows above the diagonal's start being empty.",
        theorem="lower_right_empty_rows",
        check=_upper_left,
        modifiers=True,
        prepare=_lower_right_mask,
        needs=needs.empty_rows,
        catches=("flash-attention#402", "jax#24491"),
        also=(
            "upper_left_eq_lower_right_iff",
            "lower_right_last_query_sees_all",
        ),
    )
)
register(
    Property(
        id="large-logits",
        claim="Logits far beyond the range of exp, of both signs, give finite and right weights and gradients.",
        theorem="shift_invariance",
        check=_large_logits,
        modifiers=True,
        prepare=_large,
        catches=("flashinfer#4267", "pytorch#119131", "trl#7181"),
        also=(
            "common_factor_cancels",
            "online_merge_equals_direct",
            "online_merge_any_tree",
        ),
    )
)
