"""What holds of relations with a structure: windows, prefixes, segments, padding, decoding, branches.

Each claim reads what it needs off the call it is given, so that it stays true of any call made smaller. Half of the
calls are counting probes: with equal scores and unit-vector values an output counts the visible keys, and one wrong
edge shows.
"""

from __future__ import annotations

import numpy as np

from attnspec.certify.claims import requires
from attnspec.certify.trials.property import Trials, claim
from attnspec.certify.trials.run import ROWWISE
from attnspec.certify.trials.trial import Trial
from attnspec.pyspec import AttentionCall
from attnspec.strategies.derived import call_rng, garbage, take_keys, take_queries
from attnspec.strategies.relations import (
    branching,
    decoding,
    no_scores,
    padded,
    prefixed,
    segmented,
    windowed,
    with_unused_slots,
)


@claim(
    "window-law",
    "A window shows the keys within its reach on either side of the query's position, both ends in.",
    theorem="window_law",
    also=("window_is_causal",),
    prepare=windowed,
    needs=requires("masks"),
    small=True,
)
def window_law(call: AttentionCall) -> Trials:
    yield Trial(call)


@claim(
    "prefix-law",
    "A prefix is seen whole by every query, its own included, and what follows it causally.",
    theorem="prefix_law",
    also=("prefix_is_a_causal_region",),
    prepare=prefixed,
    needs=requires("masks"),
    small=True,
)
def prefix_law(call: AttentionCall) -> Trials:
    yield Trial(call)


@claim(
    "segments-isolated",
    "A query in a packed row reads the keys of its own sequence, and no change to another's reaches it.",
    theorem="segments_law",
    also=("segments_equal_separate", "locality_forward"),
    prepare=segmented,
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
    yield Trial(other, against=call, tensors=ROWWISE, where=where)


@claim(
    "key-padding-keys-only",
    "Key padding hides keys from queries and no query: rows at padded positions are rows like any other.",
    theorem="padding_may_be_cut_off",
    also=("queries_independent",),
    prepare=padded,
    needs=requires("masks"),
    small=True,
)
def key_padding_keys_only(call: AttentionCall) -> Trials:
    """Every query gives its row, also one at the position of a padded key; padding may be cut off."""
    yield Trial(call)
    kept = np.asarray(call.visible.any(axis=(0, 1, 2)))
    if kept.any() and not kept.all():
        yield Trial(take_keys(call, np.flatnonzero(kept)), against=call, tensors=ROWWISE)


@claim(
    "cached-decoding",
    "The last queries over the cached keys, with unused slots or without, give their rows of the whole.",
    theorem="cached_decoding_equals_full",
    also=("causal_offset_shift", "lower_right_last_query_sees_all"),
    prepare=decoding,
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
    views = dict.fromkeys(ROWWISE, ((2, rows),))
    chunk = take_queries(call, rows)
    buffer = with_unused_slots(chunk, int(rng.integers(1, 5)), rng)
    yield Trial(call, tensors=ROWWISE)
    yield Trial(chunk, tensors=ROWWISE, against=call, views=views)
    yield Trial(buffer, tensors=ROWWISE, against=call, views=views)


@claim(
    "branches-alone",
    "A candidate in a tree reads the cache and its ancestors, and gives what its own path gives alone.",
    theorem="row_over_visible_keys",
    also=("locality_forward", "queries_independent"),
    prepare=branching,
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
    yield Trial(path, tensors=ROWWISE, against=call, views=dict.fromkeys(ROWWISE, ((2, row),)))
