"""What holds of keys and values: hidden ones are inert, order does not matter, packed sequences stay apart."""

from __future__ import annotations

import numpy as np

from attnspec.certify.properties import needs
from attnspec.certify.properties.agree import agree, joined, observed, zero
from attnspec.certify.properties.model import Bench, Outcome, Property, call_rng, register
from attnspec.certify.properties.surgery import garbage, keys_hidden_from_all, take_keys, take_queries, with_mask
from attnspec.pyspec import AttentionCall
from attnspec.pyspec.visibility import segments


def _some_keys_hidden(call: AttentionCall) -> AttentionCall | None:
    """Some keys hidden from every row, often those at the end; None where there are not two keys and a row."""
    a = call.axes
    if a.keys < 2 or a.queries == 0:
        return None
    rng = call_rng(call, "hidden keys")
    hidden = rng.random(a.keys) < 0.3
    hidden[int(rng.integers(a.keys))] = True
    # The tail of the last tile is where padding lives.
    if rng.random() < 0.5:
        hidden = np.arange(a.keys) >= int(rng.integers(1, a.keys))
    return with_mask(call, call.visible & ~hidden)


def _inert(call: AttentionCall, bench: Bench) -> Outcome:
    hidden = keys_hidden_from_all(call)[..., None]
    if not hidden.any():
        return Outcome(skipped="no key is hidden from every row")
    rng = call_rng(call, "garbage")
    other = call.but(
        key=np.where(hidden, garbage(rng, call.key.shape, call.dtype), call.key),
        value=np.where(hidden, garbage(rng, call.value.shape, call.dtype), call.value),
    )
    return agree(other, bench, against=call)


def _poison(call: AttentionCall, bench: Bench) -> Outcome:
    reason = bench.uncovered(call)
    if reason is not None:
        return Outcome(skipped=reason)
    hidden = keys_hidden_from_all(call)[..., None]
    if not hidden.any():
        return Outcome(skipped="no key is hidden from every row")
    rng = call_rng(call, "poison")
    raw = {
        name: np.where(hidden, rng.choice([np.nan, np.inf, -np.inf]), getattr(call, name))
        for name in rng.permutation(["key", "value"])[: int(rng.integers(1, 3))]
    }
    return agree(call, bench, seen=bench.observe(call, raw))


def _hidden_gradient(call: AttentionCall, bench: Bench) -> Outcome:
    if call.grad_output is None:
        return Outcome(skipped="the call has no output gradient")
    seen = observed(call, bench)
    bounds = bench.bounds(call)
    hidden = keys_hidden_from_all(call)
    judged = []
    for name in ("grad_key", "grad_value"):
        judged.append(zero(name, seen.tensors[name][hidden], bounds[name][hidden]))
    if "grad_bias" in seen.tensors and call.bias is not None and call.bias.shape == call.score_shape:
        unseen = ~call.visible
        judged.append(zero("grad_bias", seen.tensors["grad_bias"][unseen], bounds["grad_bias"][unseen]))
    return Outcome(judgements=tuple(judged), kernel=seen.kernel)


def _permuted(call: AttentionCall, bench: Bench) -> Outcome:
    if call.axes.keys < 2:
        return Outcome(skipped="fewer than two keys")
    order = call_rng(call, "key order").permutation(call.axes.keys)
    along_keys = {n: (lambda a: a[:, :, order]) for n in ("grad_key", "grad_value")}
    views = {**along_keys, "grad_bias": lambda a: a if a.shape[3] == 1 else a[..., order]}
    return joined(agree(call, bench), agree(take_keys(call, order), bench, against=call, views=views))


def _two_segments(call: AttentionCall) -> AttentionCall | None:
    a = call.axes
    if a.queries < 2 or a.keys < 2:
        return None
    rng = call_rng(call, "segments")
    q_cut, k_cut = int(rng.integers(1, a.queries)), int(rng.integers(1, a.keys))
    relation = segments(np.arange(a.queries) >= q_cut, np.arange(a.keys) >= k_cut)
    return with_mask(call, call.visible & relation[None, None])


def _packed(call: AttentionCall, bench: Bench) -> Outcome:
    queries, keys = call.axes.queries, call.axes.keys
    # The cut can be read off the mask: the largest block structure consistent with it.
    cut = _cut(np.asarray(call.visible.any(axis=(0, 1))))
    if cut is None:
        return Outcome(skipped="the mask is not two segments")
    parts = [agree(call, bench)]
    for rows, cols in (
        (np.arange(cut[0]), np.arange(cut[1])),
        (np.arange(cut[0], queries), np.arange(cut[1], keys)),
    ):
        views = {
            "output": lambda a, r=rows: a[:, :, r],
            "lse": lambda a, r=rows: a[:, :, r],
            "grad_query": lambda a, r=rows: a[:, :, r],
            "grad_key": lambda a, c=cols: a[:, :, c],
            "grad_value": lambda a, c=cols: a[:, :, c],
        }
        alone = take_keys(take_queries(call, rows), cols)
        parts.append(agree(alone, bench, tensors=tuple(views), against=call, views=views))
    return joined(*parts)


def _cut(relation: np.ndarray) -> tuple[int, int] | None:
    """Some (q, k) with nothing visible in the two off-diagonal blocks, or None."""
    queries, keys = relation.shape
    for q in range(1, queries):
        for k in range(1, keys):
            if not relation[:q, k:].any() and not relation[q:, :k].any():
                return q, k
    return None


register(
    Property(
        id="masked-keys-inert",
        claim="Keys that no row sees have no effect: other values there change nothing and get gradient zero.",
        theorem="masked_keys_inert",
        check=_inert,
        modifiers=True,
        prepare=_some_keys_hidden,
        needs=needs.masks,
        catches=("flash-attention#1745", "tt-metal#41215", "flash-linear-attention#838"),
        also=(
            "locality_forward",
            "locality_backward",
            "padding_may_be_cut_off",
        ),
    )
)
register(
    Property(
        id="poison-isolated",
        claim="NaN or infinity in keys and values that no row sees has no effect (where the subject claims so).",
        theorem="masked_keys_inert",
        check=_poison,
        modifiers=True,
        prepare=_some_keys_hidden,
        needs=needs.poison,
        catches=("pytorch#101967", "flash-attention#1745"),
    )
)
register(
    Property(
        id="masked-gradient-zero",
        claim="The gradient of a hidden score, and of a key and value that no row sees, is exactly zero.",
        theorem="masked_key_gradients_zero",
        check=_hidden_gradient,
        modifiers=True,
        prepare=_some_keys_hidden,
        needs=lambda c: needs.masks(c) or needs.gradients(c),
        catches=("pytorch#158212",),
        also=("masked_score_gradient_zero",),
    )
)
register(
    Property(
        id="key-permutation",
        claim="Reordering keys with their values, mask and bias leaves outputs alone and reorders their gradients.",
        theorem="key_permutation_equivariance",
        check=_permuted,
        modifiers=True,
        small=True,
    )
)
register(
    Property(
        id="packed-equals-separate",
        claim="Two packed sequences give what each gives alone, forward and backward.",
        theorem="packed_equals_separate",
        check=_packed,
        prepare=_two_segments,
        needs=needs.masks,
        small=True,
        catches=("flash-linear-attention#838",),
        also=(
            "packed_gradients_equal_separate",
            "segments_equal_separate",
            "segments_law",
        ),
    )
)
