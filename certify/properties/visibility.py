"""What holds of relations with a structure: windows, prefixes, segments, padding, decoding, branches.

Each claim reads what it needs off the call it is given, so that it stays true of any call made smaller. Half of the
calls are counting probes: with equal scores and unit-vector values an output counts the visible keys, and one wrong
edge shows.
"""

from __future__ import annotations

import numpy as np

from attnspec.certify.properties.requires import requires
from attnspec.certify.properties.surgery import garbage, take_keys, take_queries, with_least_mask, with_mask
from attnspec.certify.trials.claim import Trials, call_rng, claim
from attnspec.certify.trials.trial import Trial
from attnspec.pyspec import AttentionCall, Visibility
from attnspec.pyspec.calls.masks.compiler import compile_visibility

FORWARD = ("output", "lse", "grad_query")


def counting(call: AttentionCall, *, keep_bias: bool = False) -> AttentionCall:
    """Query zero and value j the unit vector j mod Dv, with the mask as it is and a silent bias unless it is kept.

    Output gradients become their signs, so that value gradients count too.
    """
    a = call.axes
    hot = (np.arange(a.keys)[:, None] % max(a.value_width, 1)) == np.arange(a.value_width)
    return call.but(
        query=np.zeros_like(call.query),
        value=np.broadcast_to(hot.astype(np.float64), call.value.shape).copy(),
        bias=call.bias if keep_bias or call.bias is None else np.zeros_like(call.bias),
        grad_output=None if call.grad_output is None else np.sign(call.grad_output),
        dropout=None,
    )


def half_counting(call: AttentionCall, *, keep_bias: bool = False) -> AttentionCall:
    """Every other call becomes a counting probe: one call is checked, and that call is the counter-example."""
    return counting(call, keep_bias=keep_bias) if call_rng(call, "counting").random() < 0.5 else call


def no_scores(call: AttentionCall) -> bool:
    """Is there no batch row, head, query or key?"""
    return 0 in call.score_shape


def _offset(call: AttentionCall, rng: np.random.Generator) -> int:
    a = call.axes
    options = (0, a.keys - a.queries, int(rng.integers(0, max(a.keys, 1))))
    return int(rng.choice(options))


def _windowed(call: AttentionCall) -> AttentionCall | None:
    if no_scores(call):
        return None
    a, rng = call.axes, call_rng(call, "window")
    reach = [int(n) for n in rng.integers(0, max(2, min(a.keys, 6)), 2)]
    if rng.random() < 0.5:
        reach[1] = 0
    compiled = compile_visibility(*call.score_shape, window=(reach[0], reach[1]), cache_offset=_offset(call, rng))
    return half_counting(with_mask(call, compiled.mask))


@claim(
    "window-law",
    "A window shows the keys within its reach on either side of the query's position, both ends in.",
    theorem="window_law",
    also=("window_is_causal",),
    prepare=_windowed,
    needs=requires("masks"),
    small=True,
)
def window_law(call: AttentionCall) -> Trials:
    yield Trial(call)


def _prefixed(call: AttentionCall) -> AttentionCall | None:
    if no_scores(call):
        return None
    a, rng = call.axes, call_rng(call, "prefix")
    length = int(rng.integers(1, a.keys + 1))
    compiled = compile_visibility(*call.score_shape, prefix_length=length, cache_offset=_offset(call, rng))
    return half_counting(with_mask(call, compiled.mask))


@claim(
    "prefix-law",
    "A prefix is seen whole by every query, its own included, and what follows it causally.",
    theorem="prefix_law",
    also=("prefix_is_a_causal_region",),
    prepare=_prefixed,
    needs=requires("masks"),
    small=True,
)
def prefix_law(call: AttentionCall) -> Trials:
    yield Trial(call)


def _segmented(call: AttentionCall) -> AttentionCall | None:
    """Two to four sequences packed in each batch row, whole or causal, none without keys, each row cut elsewhere."""
    a = call.axes
    if a.batch == 0 or a.query_heads == 0 or a.queries < 2 or a.keys < 2:
        return None
    rng = call_rng(call, "packed rows")
    count = int(rng.integers(2, min(4, a.keys) + 1))
    packs = np.tile(np.arange(count), (a.batch, 1))
    key = np.sort(np.hstack([packs, rng.integers(0, count, (a.batch, a.keys - count))]), axis=1)
    query = np.sort(rng.integers(0, count, (a.batch, a.queries)), axis=1)
    compiled = compile_visibility(
        *call.score_shape,
        query_segment=query,
        key_segment=key,
        causal=bool(rng.random() < 0.5),
        # Positions start again in each sequence, as its own causal mask has them.
        query_positions=np.arange(a.queries) - (query[:, :, None] > query[:, None, :]).sum(axis=2),
        key_positions=np.arange(a.keys) - (key[:, :, None] > key[:, None, :]).sum(axis=2),
    )
    return half_counting(with_mask(call, compiled.mask))


@claim(
    "segments-isolated",
    "A query in a packed row reads the keys of its own sequence, and no change to another's reaches it.",
    theorem="segments_law",
    also=("segments_equal_separate", "locality_forward"),
    prepare=_segmented,
    needs=requires("masks"),
    small=True,
    resembles=("flash-linear-attention#838",),
)
def segments_isolated(call: AttentionCall) -> Trials:
    """The whole agrees, and a row stays as it is when every key that it does not see changes."""
    yield Trial(call)
    if no_scores(call):
        return
    rng = call_rng(call, "other segments")
    row = int(rng.integers(call.axes.queries))
    seen = np.zeros((call.axes.batch, call.axes.key_heads, call.axes.keys), dtype=bool)
    for head, target in enumerate(call.head_map):
        seen[:, target] |= call.visible[:, head, row]
    other = call.but(
        key=np.where(seen[..., None], call.key, garbage(rng, call.key.shape, call.dtype)),
        value=np.where(seen[..., None], call.value, garbage(rng, call.value.shape, call.dtype)),
    )
    this = (np.arange(call.axes.queries) == row)[:, None]
    where = {"output": this, "grad_query": this, "lse": this[:, 0]}
    yield Trial(other, against=call, tensors=FORWARD, where=where)


def _padded(call: AttentionCall) -> AttentionCall | None:
    """As many queries as keys; padding on either side or with holes, the same or another in each batch row."""
    if no_scores(call):
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
    mask = compile_visibility(*call.score_shape, key_valid=valid).mask
    return half_counting((with_least_mask if rng.random() < 0.5 else with_mask)(call, mask))


@claim(
    "key-padding-keys-only",
    "Key padding hides keys from queries and no query: rows at padded positions are rows like any other.",
    theorem="padding_may_be_cut_off",
    also=("queries_independent",),
    prepare=_padded,
    needs=requires("masks"),
    small=True,
)
def key_padding_keys_only(call: AttentionCall) -> Trials:
    """Every query gives its row, also one at the position of a padded key; padding may be cut off."""
    yield Trial(call)
    kept = np.asarray(call.visible.any(axis=(0, 1, 2)))
    if kept.any() and not kept.all():
        yield Trial(take_keys(call, np.flatnonzero(kept)), against=call, tensors=FORWARD)


def _lower_right(call: AttentionCall) -> AttentionCall | None:
    a = call.axes
    if no_scores(call) or a.queries < 2:
        return None
    rows = min(a.queries, a.keys)
    # No more queries than keys, so that no row is empty.
    call = take_queries(call, np.arange(a.queries - rows, a.queries))
    compiled = compile_visibility(*call.score_shape, causal=True, alignment="lower_right")
    return half_counting(with_mask(call, compiled.mask))


@claim(
    "cached-decoding",
    "The last queries over the cached keys, with unused slots or without, give their rows of the whole.",
    theorem="cached_decoding_equals_full",
    also=("causal_offset_shift", "lower_right_last_query_sees_all"),
    prepare=_lower_right,
    needs=requires("masks"),
    small=True,
    resembles=("flash-attention#402",),
)
def cached_decoding(call: AttentionCall) -> Trials:
    """The last queries alone, over the same keys and over a buffer with unused slots, give their rows of the whole."""
    a = call.axes
    if a.queries < 2 or no_scores(call):
        return "fewer than two query rows, or no keys"
    rng = call_rng(call, "chunk")
    rows = np.arange(a.queries - int(rng.integers(1, a.queries)), a.queries)
    views = dict.fromkeys(FORWARD, ((2, rows),))
    chunk = take_queries(call, rows)
    buffer = _with_unused_slots(chunk, int(rng.integers(1, 5)), rng)
    yield Trial(call, tensors=FORWARD)
    yield Trial(chunk, tensors=FORWARD, against=call, views=views)
    yield Trial(buffer, tensors=FORWARD, against=call, views=views)


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
    if no_scores(call):
        return None
    count = min(call.axes.queries, call.axes.keys)
    call = take_queries(call, np.arange(count))
    rng = call_rng(call, "tree")
    parents = [int(rng.integers(-1, i)) if i else -1 for i in range(count)]
    compiled = compile_visibility(*call.score_shape, parents=parents)
    return half_counting(with_mask(call, compiled.mask))


@claim(
    "branches-alone",
    "A candidate in a tree reads the cache and its ancestors, and gives what its own path gives alone.",
    theorem="row_over_visible_keys",
    also=("locality_forward", "queries_independent"),
    prepare=_branching,
    needs=requires("masks"),
    small=True,
)
def branches_alone(call: AttentionCall) -> Trials:
    """One row, over the keys that it sees and no others, is its row of the whole; unmasked where nothing is hidden."""
    yield Trial(call)
    if no_scores(call):
        return
    row = np.array([int(call_rng(call, "path").integers(call.axes.queries))])
    path = take_queries(call, row)
    seen = np.flatnonzero(path.visible.any(axis=(0, 1, 2)))
    if seen.size == 0:
        return
    path = take_keys(path, seen)
    if path.visible.all() and path.bias is None:
        path = path.but(encoding="none")
    yield Trial(path, tensors=FORWARD, against=call, views=dict.fromkeys(FORWARD, ((2, row),)))
