"""What holds of each query row by itself."""

from __future__ import annotations

import numpy as np

from attnspec.certify.claims import requires
from attnspec.certify.trials.expectations import Between, Values, zeros
from attnspec.certify.trials.property import Trials, claim
from attnspec.certify.trials.run import ROWWISE
from attnspec.certify.trials.trial import Trial
from attnspec.pyspec import AttentionCall
from attnspec.strategies.derived import call_rng, take_queries, with_least_mask, with_mask


@claim(
    "row-separation",
    "A query row alone gives the same output and query gradient as within the whole call.",
    theorem="row_separation",
    also=(
        "backward_helper_row_separation",
        "locality_forward",
        "locality_backward",
        "queries_independent",
        "query_permutation_equivariance",
    ),
    small=True,
    resembles=("tabfm PR#40", "vllm-omni#5865", "pytorch PR#192138"),
)
def row_separation(call: AttentionCall) -> Trials:
    if call.axes.queries < 2:
        return "fewer than two query rows"
    rows = np.array([int(call_rng(call, "row").integers(call.axes.queries))])
    yield Trial(call, tensors=ROWWISE)
    yield Trial(take_queries(call, rows), against=call, views=dict.fromkeys(ROWWISE, ((2, rows),)), tensors=ROWWISE)


def _some_rows_empty(call: AttentionCall) -> AttentionCall | None:
    a = call.axes
    if a.queries < 2 or a.keys == 0:
        return None
    rng = call_rng(call, "empty rows")
    hide = rng.random((a.batch, 1, a.queries, 1)) < 0.4
    hide[:, :, int(rng.integers(a.queries))] = True
    # In most calls nothing else is hidden: such a mask is stored as one column.
    alone = rng.random() < 0.6
    others = np.ones_like(call.visible) if alone else call.visible
    # At least one full row stands next to the empty ones.
    kept = int(rng.integers(a.queries))
    mask = others & ~hide
    mask[:, :, kept] = True
    return (with_least_mask if alone else with_mask)(call, mask) if (~mask.any(-1)).any() else None


@claim(
    "empty-rows",
    "A row that sees no key has output 0, query gradient 0 and LSE -inf, and leaves the others alone.",
    theorem="empty_row_output_zero",
    also=("empty_row_weights_zero", "empty_row_gradient_zero"),
    prepare=_some_rows_empty,
    needs=requires("empty_rows"),
    resembles=("pytorch#41508", "flash-attention#443", "pytorch#178251"),
)
def empty_rows(call: AttentionCall) -> Trials:
    empty = np.asarray(~call.visible.any(axis=-1))
    if not empty.any():
        return "no empty row"
    lse = Values("lse", np.full((1, 1, 1), -np.inf), empty, "nothing")
    yield Trial(call, expect=(zeros("output", empty[..., None]), zeros("grad_query", empty[..., None]), lse))


def _values_one(call: AttentionCall) -> AttentionCall:
    return call.but(value=np.ones_like(call.value), dropout=None)


@claim(
    "unit-rows",
    "With every value equal to one, each row that sees a key gives one, and an empty row gives zero.",
    theorem="unit_values_give_one",
    also=("visible_row_sums_to_one",),
    prepare=_values_one,
    resembles=("pytorch-image-models PR#2236",),
)
def unit_rows(call: AttentionCall) -> Trials:
    one = np.asarray(call.visible.any(axis=-1, keepdims=True), dtype=np.float64)
    yield Trial(call.but(grad_output=None), tensors=(), expect=(Values("output", one, np.ones_like(one, dtype=bool)),))


@claim(
    "convex-hull",
    "Every output lies between the smallest and the largest visible value of its column.",
    theorem="output_in_convex_hull",
    also=("weights_between_zero_and_one",),
    resembles=("flash-attention#1745", "tt-metal#41215"),
)
def convex_hull(call: AttentionCall) -> Trials:
    if call.dropout is not None:
        return "dropout leaves the hull by design"
    yield Trial(call.but(grad_output=None), tensors=(), expect=(Between("output", *hull(call)),))


def hull(call: AttentionCall) -> tuple[np.ndarray, np.ndarray]:
    """Smallest and largest visible value of each row and column [B,Hq,Q,Dv]; zero on empty rows."""
    a = call.axes
    low = np.zeros((*call.score_shape[:3], a.value_width))
    high = np.zeros_like(low)
    value = call.value[:, list(call.head_map)]
    for b, h, i in np.ndindex(call.score_shape[:3]):
        seen = value[b, h][call.visible[b, h, i]]
        if len(seen):
            low[b, h, i], high[b, h, i] = seen.min(axis=0), seen.max(axis=0)
    return low, high


def _one_key_each(call: AttentionCall) -> AttentionCall | None:
    a = call.axes
    if a.keys == 0 or a.queries == 0:
        return None
    rng = call_rng(call, "single keys")
    chosen = rng.integers(a.keys, size=call.score_shape[:3])
    return with_mask(call, np.arange(a.keys) == chosen[..., None]).but(dropout=None)


@claim(
    "singletons-copy",
    "A row that sees one key copies its value and sends no gradient to query or key.",
    theorem="singleton_copies_value",
    prepare=_one_key_each,
    needs=requires("masks"),
)
def singletons_copy(call: AttentionCall) -> Trials:
    yield Trial(call)


def _equal_keys(call: AttentionCall) -> AttentionCall | None:
    if call.axes.keys == 0:
        return None
    tied = np.broadcast_to(call.key[:, :, :1], call.key.shape)
    plain = call.but(key=np.array(tied), dropout=None)
    return plain.but(bias=np.zeros_like(call.bias)) if call.bias is not None else plain


@claim(
    "ties-share-equally",
    "Keys with equal scores share a row's weight equally, whatever the score is.",
    theorem="ties_share_equally",
    prepare=_equal_keys,
)
def ties_share_equally(call: AttentionCall) -> Trials:
    # Equal scores, whatever they are: the weights are those of scores that are all zero.
    yield Trial(call, against=call.but(query=np.zeros_like(call.query)), tensors=("output", "grad_value"))


@claim(
    "exceptional-rows",
    "A NaN or infinity in one query row stays in that row's output and query gradient.",
    theorem="row_separation",
    small=True,
)
def exceptional_rows(call: AttentionCall) -> Trials:
    queries = call.axes.queries
    if queries < 2 or call.axes.key_width == 0:
        return "fewer than two query rows, or no width"
    rng = call_rng(call, "exceptional")
    row = int(rng.integers(queries))
    raw = call.query.copy()
    raw[:, :, row] = rng.choice([np.nan, np.inf, -np.inf])
    # The key and value gradients sum over all rows, so only row-wise tensors can keep clear of the bad row.
    others = (np.arange(queries) != row)[:, None]
    where = {"output": others, "grad_query": others, "lse": others[:, 0]}
    yield Trial(call, raw={"query": raw}, tensors=ROWWISE, where=where)
