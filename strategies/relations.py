"""Calls whose masks have a structure: windows, prefixes, segments, padding, decoding, branches, and sparse rows.

Half of them are counting probes: with equal scores and unit-vector values an output counts the visible keys, and one
wrong edge shows.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attnspec.pyspec import AttentionCall
from attnspec.pyspec.calls.cut import take, with_explicit_mask
from attnspec.pyspec.calls.masks.compiler import compile_visibility
from attnspec.strategies.derived import call_rng, garbage, take_keys, take_queries, with_least_mask, with_mask


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


def windowed(call: AttentionCall) -> AttentionCall | None:
    if no_scores(call):
        return None
    a, rng = call.axes, call_rng(call, "window")
    reach = [int(n) for n in rng.integers(0, max(2, min(a.keys, 6)), 2)]
    if rng.random() < 0.5:
        reach[1] = 0
    compiled = compile_visibility(*call.score_shape, window=(reach[0], reach[1]), cache_offset=_offset(call, rng))
    return half_counting(with_mask(call, compiled.mask))


def prefixed(call: AttentionCall) -> AttentionCall | None:
    if no_scores(call):
        return None
    a, rng = call.axes, call_rng(call, "prefix")
    length = int(rng.integers(1, a.keys + 1))
    compiled = compile_visibility(*call.score_shape, prefix_length=length, cache_offset=_offset(call, rng))
    return half_counting(with_mask(call, compiled.mask))


def segmented(call: AttentionCall) -> AttentionCall | None:
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


def padded(call: AttentionCall) -> AttentionCall | None:
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


def decoding(call: AttentionCall) -> AttentionCall | None:
    a = call.axes
    if no_scores(call) or a.queries < 2:
        return None
    rows = min(a.queries, a.keys)
    # No more queries than keys, so that no row is empty.
    call = take_queries(call, np.arange(a.queries - rows, a.queries))
    compiled = compile_visibility(*call.score_shape, causal=True, alignment="lower_right")
    return half_counting(with_mask(call, compiled.mask))


def with_unused_slots(call: AttentionCall, slots: int, rng: np.random.Generator) -> AttentionCall:
    """Key slots behind the others that were never written: garbage that no query sees."""
    a = call.axes
    more = take(with_explicit_mask(call), "keys", [*range(a.keys), *([0] * slots)])

    def behind(x: np.ndarray) -> np.ndarray:
        unused = np.arange(a.keys + slots)[:, None] >= a.keys
        return np.where(unused, garbage(rng, x.shape, call.dtype), x)

    whole = np.array(np.broadcast_to(more.visibility.mask, more.score_shape))
    whole[..., a.keys :] = False
    encoding = "bool" if call.bias is None and call.encoding != "additive" else "additive"
    visibility = replace(more.visibility, mask=whole)
    return more.but(key=behind(more.key), value=behind(more.value), visibility=visibility, encoding=encoding)


def branching(call: AttentionCall) -> AttentionCall | None:
    """The queries are candidates in a tree, over the keys before their own slots as the cache."""
    if no_scores(call):
        return None
    count = min(call.axes.queries, call.axes.keys)
    call = take_queries(call, np.arange(count))
    rng = call_rng(call, "tree")
    parents = [int(rng.integers(-1, i)) if i else -1 for i in range(count)]
    compiled = compile_visibility(*call.score_shape, parents=parents)
    return half_counting(with_mask(call, compiled.mask))


def sparse(call: AttentionCall) -> AttentionCall | None:
    """Every row sees one key at least and misses one at least."""
    a = call.axes
    if no_scores(call) or a.keys < 2:
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


def bool_or_additive(call: AttentionCall) -> AttentionCall | None:
    """As a boolean mask or as zeros and -inf."""
    found = sparse(call)
    if found is None:
        return None
    kind = str(call_rng(call, "told").choice(["bool", "additive"]))
    return half_counting(found.but(bias=None, encoding=kind))


def hidden_rewarded(call: AttentionCall) -> AttentionCall | None:
    """A bias that prefers exactly the hidden keys."""
    found = sparse(call)
    if found is None:
        return None
    rng = call_rng(call, "reward")
    bias = np.where(found.visible, rng.integers(-2, 3, call.score_shape), rng.choice([7.0, 64.0, 1024.0]))
    return found.but(bias=bias.astype(np.float64), encoding="additive")


def far_below(call: AttentionCall) -> AttentionCall | None:
    """The visible scores of every row lie near -2^15, the hidden ones near 0: every format holds both."""
    found = sparse(call)
    if found is None:
        return None
    size = call_rng(call, "depth").choice([2.0**14, 2.0**15])
    # In a counting probe the bias stays: the query is zero, so the scores are the bias and the softmax is exact.
    return half_counting(found.but(bias=np.where(found.visible, -size, 0.0), encoding="additive"), keep_bias=True)
