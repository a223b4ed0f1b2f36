"""What holds of visibility: windows, prefixes, segments, padding, decoding, branches, polarity, and absence.

Each check reads what it needs off the call it is given, so that it stays true of any call made smaller. Half of the
calls are counting probes: with equal scores and unit-vector values an output counts the visible keys, and one wrong
edge shows.
"""

from __future__ import annotations

import numpy as np

from certify.properties import needs
from certify.properties.agree import agree, joined
from certify.properties.model import Bench, Outcome, Property, call_rng, register
from certify.properties.surgery import garbage, take_keys, take_queries, with_mask
from pyspec import AttentionCall, Visibility
from pyspec.compiler import compile_visibility

_FORWARD = ("output", "lse", "grad_query")


def counting(call: AttentionCall, *, keep_bias: bool = False) -> AttentionCall:
    """Query zero and value j the unit vector j mod Dv, with the mask as it is and a silent bias unless it is kept."""
    a = call.axes
    hot = (np.arange(a.keys)[:, None] % max(a.value_width, 1)) == np.arange(a.value_width)
    return call.but(
        query=np.zeros_like(call.query),
        value=np.broadcast_to(hot.astype(np.float64), call.value.shape).copy(),
        bias=call.bias if keep_bias or call.bias is None else np.zeros_like(call.bias),
        dropout=None,
    )


def _half_counting(call: AttentionCall, *, keep_bias: bool = False) -> AttentionCall:
    """Every other call becomes a counting probe: one call is checked, and that call is the counter-example."""
    return counting(call, keep_bias=keep_bias) if call_rng(call, "counting").random() < 0.5 else call


def _agrees(call: AttentionCall, bench: Bench) -> Outcome:
    return agree(call, bench)


def _no_scores(call: AttentionCall) -> bool:
    return 0 in call.score_shape


def _offset(call: AttentionCall, rng: np.random.Generator) -> int:
    a = call.axes
    options = (0, a.keys - a.queries, int(rng.integers(0, max(a.keys, 1))))
    return int(rng.choice(options))


def _windowed(call: AttentionCall) -> AttentionCall | None:
    if _no_scores(call):
        return None
    a, rng = call.axes, call_rng(call, "window")
    reach = [int(n) for n in rng.integers(0, max(2, min(a.keys, 6)), 2)]
    if rng.random() < 0.5:
        reach[1] = 0
    compiled = compile_visibility(*call.score_shape, window=(reach[0], reach[1]), cache_offset=_offset(call, rng))
    return _half_counting(with_mask(call, compiled.mask))


def _prefixed(call: AttentionCall) -> AttentionCall | None:
    if _no_scores(call):
        return None
    a, rng = call.axes, call_rng(call, "prefix")
    length = int(rng.integers(1, a.keys + 1))
    compiled = compile_visibility(*call.score_shape, prefix_length=length, cache_offset=_offset(call, rng))
    return _half_counting(with_mask(call, compiled.mask))


def _segmented(call: AttentionCall) -> AttentionCall | None:
    """Two to four sequences packed in each batch row, whole or causal, none of them without keys."""
    a = call.axes
    if a.batch == 0 or a.query_heads == 0 or a.queries < 2 or a.keys < 2:
        return None
    rng = call_rng(call, "packed rows")
    count = int(rng.integers(2, min(4, a.keys) + 1))
    key = np.sort(np.concatenate([np.arange(count), rng.integers(0, count, a.keys - count)]))
    query = np.sort(rng.integers(0, count, a.queries))
    compiled = compile_visibility(
        *call.score_shape,
        query_segment=query,
        key_segment=key,
        causal=bool(rng.random() < 0.5),
        # Positions start again in each sequence, as its own causal mask has them.
        query_positions=np.arange(a.queries) - np.searchsorted(query, query),
        key_positions=np.arange(a.keys) - np.searchsorted(key, key),
    )
    return _half_counting(with_mask(call, compiled.mask))


def _segments(call: AttentionCall, bench: Bench) -> Outcome:
    """The whole agrees, and a row stays as it is when every key that it does not see changes."""
    whole = agree(call, bench)
    if _no_scores(call):
        return whole
    rng = call_rng(call, "other segments")
    row = int(rng.integers(call.axes.queries))
    seen = np.zeros((call.axes.batch, call.axes.key_heads, call.axes.keys), dtype=bool)
    for head, target in enumerate(call.head_map):
        seen[:, target] |= call.visible[:, head, row]
    other = call.but(
        key=np.where(seen[..., None], call.key, garbage(rng, call.key.shape, call.dtype)),
        value=np.where(seen[..., None], call.value, garbage(rng, call.value.shape, call.dtype)),
    )
    bounds = bench.bounds(other)
    for name in _FORWARD:
        if name in bounds:
            others = np.arange(call.axes.queries) != row
            bounds[name][:, :, others] = np.inf
    return joined(whole, agree(other, bench, tensors=_FORWARD, against=call, bounds=bounds))


def _padded(call: AttentionCall) -> AttentionCall | None:
    """As many queries as keys; padding on either side or with holes, the same or another in each batch row."""
    if _no_scores(call):
        return None
    size = min(call.axes.queries, call.axes.keys)
    call = take_keys(take_queries(call, np.arange(size)), np.arange(size))
    rng = call_rng(call, "key padding")
    length = rng.integers(1, size + 1, (call.axes.batch, 1))
    if rng.random() < 0.5:
        length[:] = length[:1]
    j = np.arange(size)
    kind = rng.choice(["right", "left", "holes"])
    valid = {"right": j < length, "left": j >= size - length, "holes": rng.random((len(length), size)) < 0.6}[kind]
    valid[:, int(rng.integers(size))] = True
    return _half_counting(with_mask(call, compile_visibility(*call.score_shape, key_valid=valid).mask))


def _keys_only(call: AttentionCall, bench: Bench) -> Outcome:
    """Every query gives its row, also one at the position of a padded key; padding may be cut off."""
    whole = agree(call, bench)
    kept = np.asarray(call.visible.any(axis=(0, 1, 2)))
    if kept.all() or not kept.any():
        return whole
    return joined(whole, agree(take_keys(call, np.flatnonzero(kept)), bench, tensors=_FORWARD, against=call))


def _lower_right(call: AttentionCall) -> AttentionCall | None:
    a = call.axes
    if _no_scores(call) or a.queries < 2:
        return None
    rows = min(a.queries, a.keys)
    # No more queries than keys, so that no row is empty.
    call = take_queries(call, np.arange(a.queries - rows, a.queries))
    compiled = compile_visibility(*call.score_shape, causal=True, alignment="lower_right")
    return _half_counting(with_mask(call, compiled.mask))


def _chunks(call: AttentionCall, bench: Bench) -> Outcome:
    """The last queries alone, over the same keys and over a buffer with unused slots, give their rows of the whole."""
    a = call.axes
    if a.queries < 2 or _no_scores(call):
        return Outcome(skipped="fewer than two query rows, or no keys")
    rng = call_rng(call, "chunk")
    rows = np.arange(a.queries - int(rng.integers(1, a.queries)), a.queries)
    views = {name: (lambda t: t[:, :, rows]) for name in _FORWARD}
    chunk = take_queries(call, rows)
    buffer = _with_unused_slots(chunk, int(rng.integers(1, 5)), rng)
    return joined(
        agree(call, bench, tensors=_FORWARD),
        agree(chunk, bench, tensors=_FORWARD, against=call, views=views),
        agree(buffer, bench, tensors=_FORWARD, against=call, views=views),
    )


def _with_unused_slots(call: AttentionCall, slots: int, rng: np.random.Generator) -> AttentionCall:
    """Key slots behind the others that were never written: garbage that no query sees."""
    a, v = call.axes, call.visibility

    def behind(x: np.ndarray) -> np.ndarray:
        more = garbage(rng, (a.batch, a.key_heads, slots, x.shape[-1]), call.dtype)
        return np.concatenate([x, more], axis=2)

    def column(x: np.ndarray, fill: float | bool) -> np.ndarray:
        whole = np.broadcast_to(x, (*x.shape[:3], a.keys))
        return np.concatenate([whole, np.full((*x.shape[:3], slots), fill, dtype=x.dtype)], axis=3)

    drop = call.dropout
    return call.but(
        key=behind(call.key),
        value=behind(call.value),
        bias=None if call.bias is None else column(call.bias, 0.0),
        dropout=None if drop is None else drop.__class__(drop.probability, column(drop.multiplier, 0.0), drop.training),
        visibility=Visibility(column(v.mask, False), v.query_valid, v.empty_rows),
        encoding="bool" if call.bias is None and call.encoding != "additive" else "additive",
    )


def _branching(call: AttentionCall) -> AttentionCall | None:
    """The queries are candidates in a tree, over the keys before their own slots as the cache."""
    if _no_scores(call):
        return None
    count = min(call.axes.queries, call.axes.keys)
    call = take_queries(call, np.arange(count))
    rng = call_rng(call, "tree")
    parents = [int(rng.integers(-1, i)) if i else -1 for i in range(count)]
    compiled = compile_visibility(*call.score_shape, parents=parents)
    return _half_counting(with_mask(call, compiled.mask))


def _path_alone(call: AttentionCall, bench: Bench) -> Outcome:
    """One row, over the keys that it sees and no others, is its row of the whole; unmasked where nothing is hidden."""
    whole = agree(call, bench)
    if _no_scores(call):
        return whole
    row = np.array([int(call_rng(call, "path").integers(call.axes.queries))])
    path = take_queries(call, row)
    seen = np.flatnonzero(path.visible.any(axis=(0, 1, 2)))
    if seen.size == 0:
        return whole
    path = take_keys(path, seen)
    if path.visible.all() and path.bias is None:
        path = path.but(encoding="none")
    views = {name: (lambda t: t[:, :, row]) for name in _FORWARD}
    return joined(whole, agree(path, bench, tensors=_FORWARD, against=call, views=views))


def _sparse(call: AttentionCall) -> AttentionCall | None:
    """Every row sees one key at least and misses one at least."""
    a = call.axes
    if _no_scores(call) or a.keys < 2:
        return None
    rng = call_rng(call, "sparse")
    mask = rng.random(call.score_shape) < rng.choice([0.2, 0.5, 0.8])
    one, other = (
        rng.integers(a.keys, size=(*call.score_shape[:3], 1)),
        rng.integers(1, a.keys, (*call.score_shape[:3], 1)),
    )
    np.put_along_axis(mask, one, True, axis=-1)
    np.put_along_axis(mask, (one + other) % a.keys, False, axis=-1)
    return with_mask(call, mask)


def _told_either_way(call: AttentionCall) -> AttentionCall | None:
    """As a boolean mask or as zeros and -inf."""
    found = _sparse(call)
    if found is None:
        return None
    kind = str(call_rng(call, "told").choice(["bool", "additive"]))
    return _half_counting(found.but(bias=None, encoding=kind))


def _rewarded(call: AttentionCall) -> AttentionCall | None:
    """A bias that prefers exactly the hidden keys."""
    found = _sparse(call)
    if found is None:
        return None
    rng = call_rng(call, "reward")
    bias = np.where(found.visible, rng.integers(-2, 3, call.score_shape), rng.choice([7.0, 64.0, 1024.0]))
    return found.but(bias=bias.astype(np.float64), encoding="additive")


def _never_revived(call: AttentionCall, bench: Bench) -> Outcome:
    """A finite bias on a hidden edge changes nothing, however large, and gets no gradient."""
    direct = agree(call, bench)
    if call.bias is None or call.visible.all():
        return direct
    whole = np.broadcast_to(call.bias, call.score_shape)
    other = call.but(bias=np.where(call.visible, whole, call_rng(call, "other reward").choice([-7.0, 0.0, 7.0])))
    return joined(direct, agree(other, bench, tensors=(*_FORWARD, "grad_key", "grad_value"), against=call))


def _far_below(call: AttentionCall) -> AttentionCall | None:
    """The visible scores of every row lie near -2^15, the hidden ones near 0: every format holds both."""
    found = _sparse(call)
    if found is None:
        return None
    size = call_rng(call, "depth").choice([2.0**14, 2.0**15])
    # In a counting probe the bias stays: the query is zero, so the scores are the bias and the softmax is exact.
    return _half_counting(found.but(bias=np.where(found.visible, -size, 0.0), encoding="additive"), keep_bias=True)


register(
    Property(
        id="window-law",
        claim="A window shows the keys within its reach on either side of the query's position, both ends in.",
        theorem="window_law",
        check=_agrees,
        prepare=_windowed,
        needs=needs.masks,
        small=True,
        also=("window_is_causal",),
    )
)
register(
    Property(
        id="prefix-law",
        claim="A prefix is seen whole by every query, its own included, and what follows it causally.",
        theorem="prefix_law",
        check=_agrees,
        prepare=_prefixed,
        needs=needs.masks,
        small=True,
    )
)
register(
    Property(
        id="segments-isolated",
        claim="A query in a packed row reads the keys of its own sequence, and no change to another's reaches it.",
        theorem="segments_law",
        check=_segments,
        prepare=_segmented,
        needs=needs.masks,
        small=True,
        also=("segments_equal_separate", "locality_forward"),
        catches=("flash-linear-attention#838",),
    )
)
register(
    Property(
        id="key-padding-keys-only",
        claim="Key padding hides keys from queries and no query: rows at padded positions are rows like any other.",
        theorem="padding_may_be_cut_off",
        check=_keys_only,
        prepare=_padded,
        needs=needs.masks,
        small=True,
        also=("queries_independent",),
    )
)
register(
    Property(
        id="cached-decoding",
        claim="The last queries over the cached keys, with unused slots or without, give their rows of the whole.",
        theorem="cached_decoding_equals_full",
        check=_chunks,
        prepare=_lower_right,
        needs=needs.masks,
        small=True,
        also=("causal_offset_shift", "lower_right_last_query_sees_all"),
        catches=("flash-attention#402",),
    )
)
register(
    Property(
        id="branches-alone",
        claim="A candidate in a tree reads the cache and its ancestors, and gives what its own path gives alone.",
        theorem="locality_forward",
        check=_path_alone,
        prepare=_branching,
        needs=needs.masks,
        small=True,
        also=("queries_independent", "key_permutation_equivariance", "padding_may_be_cut_off"),
    )
)
register(
    Property(
        id="mask-polarity",
        claim="True in a boolean mask and zero in an additive one mean that the key is visible.",
        theorem="visibility_composition",
        check=_agrees,
        prepare=_told_either_way,
        needs=needs.masks,
        small=True,
        catches=("LLMs-from-scratch#1061",),
    )
)
register(
    Property(
        id="bias-never-revives",
        claim="A finite bias on a hidden key, however large, gives it no weight and gets no gradient.",
        theorem="masked_weight_zero",
        check=_never_revived,
        prepare=_rewarded,
        needs=needs.bias,
        small=True,
        also=("masked_score_gradient_zero", "locality_forward"),
    )
)
register(
    Property(
        id="hidden-is-absent",
        claim="However far below the hidden scores the visible ones lie, hidden keys take no weight.",
        theorem="masked_weight_zero",
        check=_agrees,
        prepare=_far_below,
        needs=needs.bias,
        small=True,
        also=("shift_invariance",),
    )
)
