"""What holds of each query row by itself."""

from __future__ import annotations

import numpy as np

from attnspec.certify.properties import needs
from attnspec.certify.properties.agree import agree, compare, joined, observed, zero
from attnspec.certify.properties.model import Bench, Outcome, Property, call_rng, register
from attnspec.certify.properties.surgery import take_queries, with_least_mask, with_mask
from attnspec.pyspec import AttentionCall


def _separate(call: AttentionCall, bench: Bench) -> Outcome:
    queries = call.axes.queries
    if queries < 2:
        return Outcome(skipped="fewer than two query rows")
    row = int(call_rng(call, "row").integers(queries))
    rows = np.array([row])
    views = {name: lambda a: a[:, :, rows] for name in ("output", "lse", "grad_query")}
    together = agree(call, bench, tensors=tuple(views))
    return joined(together, agree(take_queries(call, rows), bench, tensors=tuple(views), against=call, views=views))


def _some_rows_empty(call: AttentionCall) -> AttentionCall | None:
    a = call.axes
    if a.queries < 2 or a.keys == 0:
        return None
    rng = call_rng(call, "empty rows")
    hide = rng.random((a.batch, 1, a.queries, 1)) < 0.4
    hide[:, :, int(rng.integers(a.queries))] = True
    # In most calls nothing else is hidden: such a mask is told by one column.
    alone = rng.random() < 0.6
    others = np.ones_like(call.visible) if alone else call.visible
    # At least one full row stands next to the empty ones.
    kept = int(rng.integers(a.queries))
    mask = others & ~hide
    mask[:, :, kept] = True
    return (with_least_mask if alone else with_mask)(call, mask) if (~mask.any(-1)).any() else None


def _empty_rows(call: AttentionCall, bench: Bench) -> Outcome:
    empty = ~call.visible.any(axis=-1)
    if not empty.any():
        return Outcome(skipped="no empty row")
    seen = observed(call, bench)
    judged = []
    bounds = bench.bounds(call)
    for name in ("output", "grad_query"):
        if name in seen.tensors:
            judged.append(zero(name, seen.tensors[name][empty], bounds[name][empty]))
    if "lse" in seen.tensors:
        found = seen.tensors["lse"][empty]
        judged.append(compare("lse", found, np.full_like(found, -np.inf), np.zeros_like(found)))
    others = agree(call, bench, seen=seen, bounds=bounds)
    return joined(Outcome(judgements=tuple(judged), kernel=seen.kernel), others)


def _values_one(call: AttentionCall) -> AttentionCall:
    return call.but(value=np.ones_like(call.value), dropout=None)


def _unit_rows(call: AttentionCall, bench: Bench) -> Outcome:
    call = call.but(grad_output=None)
    seen = observed(call, bench)
    one = np.broadcast_to(call.visible.any(axis=-1, keepdims=True), seen.tensors["output"].shape)
    judged = compare("output", seen.tensors["output"], one.astype(np.float64), bench.bounds(call)["output"])
    return Outcome(judgements=(judged,), kernel=seen.kernel)


def _hull(call: AttentionCall, bench: Bench) -> Outcome:
    if call.dropout is not None:
        return Outcome(skipped="dropout leaves the hull by design")
    call = call.but(grad_output=None)
    seen = observed(call, bench)
    low, high = hull(call)
    found = seen.tensors["output"]
    nearest = np.clip(np.where(np.isnan(found), np.inf, found), low, high)
    judged = compare("output", found, nearest, bench.bounds(call)["output"])
    return Outcome(judgements=(judged,), kernel=seen.kernel)


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


def _singletons(call: AttentionCall, bench: Bench) -> Outcome:
    return agree(call, bench)


def _equal_keys(call: AttentionCall) -> AttentionCall | None:
    if call.axes.keys == 0:
        return None
    tied = np.broadcast_to(call.key[:, :, :1], call.key.shape)
    plain = call.but(key=np.array(tied), dropout=None)
    return plain.but(bias=np.zeros_like(call.bias)) if call.bias is not None else plain


def _ties(call: AttentionCall, bench: Bench) -> Outcome:
    # Equal scores, whatever they are: the weights are those of scores that are all zero.
    return agree(call, bench, tensors=("output", "grad_value"), against=call.but(query=np.zeros_like(call.query)))


def _exceptional_row(call: AttentionCall, bench: Bench) -> Outcome:
    queries = call.axes.queries
    if queries < 2 or call.axes.key_width == 0:
        return Outcome(skipped="fewer than two query rows, or no width")
    rng = call_rng(call, "exceptional")
    row = int(rng.integers(queries))
    raw = call.query.copy()
    raw[:, :, row] = rng.choice([np.nan, np.inf, -np.inf])
    seen = observed(call, bench, {"query": raw})
    # The key and value gradients sum over all rows, so only row-wise tensors can keep clear of the bad row.
    bounds = bench.bounds(call)
    for name in ("output", "lse", "grad_query"):
        if name in bounds:
            bounds[name][:, :, row] = np.inf
    return agree(call, bench, tensors=("output", "lse", "grad_query"), seen=seen, bounds=bounds)


register(
    Property(
        id="row-separation",
        claim="A query row alone gives the same output and query gradient as within the whole call.",
        theorem="row_separation",
        check=_separate,
        small=True,
        catches=("tabfm PR#40", "vllm-omni#5865", "pytorch PR#192138"),
        also=(
            "backward_helper_row_separation",
            "locality_forward",
            "locality_backward",
            "queries_independent",
            "query_permutation_equivariance",
        ),
    )
)
register(
    Property(
        id="empty-rows",
        claim="A row that sees no key has output 0, query gradient 0 and LSE -inf, and leaves the others alone.",
        theorem="empty_row_output_zero",
        check=_empty_rows,
        prepare=_some_rows_empty,
        needs=needs.empty_rows,
        catches=("pytorch#41508", "flash-attention#443", "pytorch#178251"),
        also=(
            "empty_row_weights_zero",
            "empty_row_gradient_zero",
        ),
    )
)
register(
    Property(
        id="unit-rows",
        claim="With every value equal to one, each row that sees a key gives one, and an empty row gives zero.",
        theorem="unit_values_give_one",
        check=_unit_rows,
        prepare=_values_one,
        catches=("pytorch-image-models PR#2236",),
        also=("visible_row_sums_to_one",),
    )
)
register(
    Property(
        id="convex-hull",
        claim="Every output lies between the smallest and the largest visible value of its column.",
        theorem="output_in_convex_hull",
        check=_hull,
        catches=("flash-attention#1745", "tt-metal#41215"),
        also=("weights_between_zero_and_one",),
    )
)
register(
    Property(
        id="singletons-copy",
        claim="A row that sees one key copies its value and sends no gradient to query or key.",
        theorem="singleton_copies_value",
        check=_singletons,
        prepare=_one_key_each,
        needs=needs.masks,
    )
)
register(
    Property(
        id="ties-share-equally",
        claim="Keys with equal scores share a row's weight equally, whatever the score is.",
        theorem="ties_share_equally",
        check=_ties,
        prepare=_equal_keys,
    )
)
register(
    Property(
        id="exceptional-rows",
        claim="A NaN or infinity in one query row stays in that row's output and query gradient.",
        theorem="row_separation",
        check=_exceptional_row,
        small=True,
    )
)
