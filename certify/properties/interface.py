"""What holds of the interface: ways to pass the same call, shapes, types, and inputs left alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attnspec.certify.claims import Capabilities, requires
from attnspec.certify.trials.contracts import InputsUnchanged, ReturnedAs
from attnspec.certify.trials.property import Trials, claim
from attnspec.certify.trials.trial import Trial
from attnspec.pyspec import AttentionCall, CallError, Dropout, Layout
from attnspec.pyspec.calls.call import LAYOUTS, MASK_ENCODINGS, MASK_LAYOUTS
from attnspec.pyspec.calls.cut import take, with_explicit_mask
from attnspec.pyspec.dropout import multiplier
from attnspec.pyspec.heads import grouped
from attnspec.strategies.derived import call_rng, with_least_mask


@claim(
    "encodings-agree",
    "A mask means the same as a boolean, as an additive -inf, as a flag, broadcast or expanded.",
    theorem="visibility_composition",
    small=True,
    resembles=("LLMs-from-scratch#1061", "pytorch PR#191612", "pytorch#187801"),
)
def encodings_agree(call: AttentionCall) -> Trials:
    """Every encoding that can express this call, and the mask both broadcast and expanded."""
    whole = np.ascontiguousarray(call.visible)
    biases = [call.bias] if call.bias is None or call.bias.any() else [call.bias, None]
    for encoding in MASK_ENCODINGS:
        for mask in (call.visibility.mask, whole):
            for bias in biases:
                try:
                    encoded = call.but(encoding=encoding, bias=bias, visibility=replace(call.visibility, mask=mask))
                except CallError:
                    continue  # this encoding cannot express this call
                yield Trial(encoded, against=call, tensors=("output", "lse", "grad_query", "grad_key", "grad_value"))


@claim(
    "layouts-agree",
    "Strides, offsets and padding of the tensors in memory do not change the result.",
    basis="interface: the spec has no memory",
    small=True,
    resembles=("pytorch#181133", "FlagGems#5235", "pytorch#146377"),
)
def layouts_agree(call: AttentionCall, claims: Capabilities) -> Trials:
    """Every claimed layout of each tensor, in as few runs as there are layouts."""
    claimed = [n for n in LAYOUTS if n in claims.layouts]
    rng = call_rng(call, "layouts")
    orders = [[str(n) for n in rng.permutation(claimed)] for _ in range(3)]
    for query, key, value in zip(*orders, strict=True):
        yield Trial(call.but(layout=Layout(query, key, value, str(rng.choice(MASK_LAYOUTS)))), against=call)


def _grouped(call: AttentionCall) -> AttentionCall | None:
    """Each key head read by two query heads more than before."""
    a, rng = call.axes, call_rng(call, "groups")
    if a.key_heads == 0:
        return None
    if rng.random() < 0.3:
        # All query heads read one key head, as in multi-query attention.
        call = call.but(key=call.key[:, :1], value=call.value[:, :1], head_map=(0,) * a.query_heads)
        a = call.axes
    group = 2 if a.key_heads * 2 <= 6 else 1
    heads = a.key_heads * group
    if group == 1 and a.query_heads == a.key_heads:
        return None
    pick = rng.integers(max(a.query_heads, 1), size=heads) if a.query_heads else None
    if pick is None:
        return None

    return take(with_explicit_mask(call), "query_heads", pick).but(head_map=grouped(heads, a.key_heads))


@claim(
    "head-map",
    "Grouped heads equal repeated key and value heads, and their gradients are summed over each group.",
    theorem="grouped_heads_equal_repeated",
    also=("grouped_head_gradients_sum_over_groups",),
    prepare=_grouped,
    needs=requires("grouped_heads"),
    resembles=("onnx#7274", "HipKittens PR#22", "pytorch#193893"),
)
def head_map(call: AttentionCall) -> Trials:
    yield Trial(call)
    heads = list(call.head_map)
    repeated = call.but(
        key=call.key[:, heads], value=call.value[:, heads], head_map=tuple(range(call.axes.query_heads))
    )
    yield Trial(repeated, against=call, tensors=("output", "lse", "grad_query"))


@claim(
    "inputs-unchanged",
    "The subject overwrites none of its inputs.",
    basis="interface",
    resembles=("flash-attention#638",),
)
def inputs_unchanged(call: AttentionCall, claims: Capabilities) -> Trials:
    """The call as it is, and as kernels are tempted to write: hidden keys, a multiplier, room around the tensors."""
    for one in (call, _tempting(call, claims)):
        yield Trial(one, tensors=(), expect=(InputsUnchanged(),))


def _tempting(call: AttentionCall, claims: Capabilities) -> AttentionCall:
    """Keys that nobody sees, a dropout multiplier and views into larger memory, as far as they are claimed."""
    a = call.axes
    if requires("masks")(claims) is None and a.keys > 1:
        # Nothing else is hidden: the mask is one row, as key padding has it.
        call = with_least_mask(call.but(bias=None, encoding="bool"), (np.arange(a.keys) % 2 == 0)[None, None, None])
    if requires("dropout")(claims) is None:
        call = _dropped(call)
    views = [n for n in ("padded", "offset") if n in claims.layouts]
    if not views:
        return call
    query, key, value = (str(n) for n in call_rng(call, "views").choice(views, 3))
    return call.but(layout=Layout(query, key, value, call.layout.mask))


@claim(
    "dtype-shape-device",
    "Outputs and gradients have the specified shapes, the inputs' dtype and the inputs' device.",
    basis="interface",
    resembles=("pytorch#97111", "pytorch#171190"),
)
def dtype_shape_device(call: AttentionCall) -> Trials:
    yield Trial(call, tensors=(), expect=(ReturnedAs(),))


# Those first without which there is more than a shape to get wrong.
ZEROED = ("keys", "key_width", "queries", "value_width", "batch")


@claim(
    "zero-sizes",
    "Calls with no batch, no query, no key or no width return empty or zero tensors of the right shape.",
    theorem="no_keys_output_zero",
    also=("no_queries_gradients_zero",),
    needs=requires("zero_sizes", "empty_rows"),
    resembles=("pytorch#184330", "flash-attention#2421"),
)
def zero_sizes(call: AttentionCall) -> Trials:
    for axis in ZEROED:
        yield Trial(take(with_explicit_mask(call), axis, ()))


def _dropped(call: AttentionCall) -> AttentionCall:
    rng = call_rng(call, "dropout")
    p = float(rng.choice([0.2, 0.5, 0.75]))
    keep = rng.random(call.score_shape) >= p
    return call.but(dropout=Dropout(p, multiplier(keep, p)))


@claim(
    "dropout-multiplier",
    "A realised dropout multiplier scales normalised weights in both passes, and is off in evaluation.",
    theorem="dropout_adjoint",
    also=("dropout_off_is_identity", "dropout_multiplier_mean_one"),
    prepare=_dropped,
    needs=requires("dropout"),
    resembles=("pytorch PR#197563", "apex#816", "nki-samples PR#81"),
)
def dropout_multiplier(call: AttentionCall) -> Trials:
    yield Trial(call)
    assert call.dropout is not None
    yield Trial(call.but(dropout=replace(call.dropout, training=False)), against=call.but(dropout=None))
