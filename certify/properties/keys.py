"""What holds of keys and values: hidden ones are inert, order does not matter, packed sequences stay apart."""

from __future__ import annotations

import numpy as np

from attnspec.certify.claims import requires
from attnspec.certify.trials.expectations import zeros
from attnspec.certify.trials.property import MODIFIERS, Trials, claim
from attnspec.certify.trials.trial import Trial
from attnspec.pyspec import AttentionCall
from attnspec.pyspec.visibility import segments
from attnspec.strategies.derived import call_rng, garbage, keys_hidden_from_all, take_keys, take_queries, with_mask


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


@claim(
    "masked-keys-inert",
    "Keys that no row sees have no effect: other values there change nothing and get gradient zero.",
    theorem="masked_keys_inert",
    also=("locality_forward", "locality_backward", "padding_may_be_cut_off"),
    keep=MODIFIERS,
    prepare=_some_keys_hidden,
    needs=requires("masks"),
    resembles=("flash-attention#1745", "tt-metal#41215", "flash-linear-attention#838"),
)
def masked_keys_inert(call: AttentionCall) -> Trials:
    hidden = keys_hidden_from_all(call)[..., None]
    if not hidden.any():
        return "no key is hidden from every row"
    rng = call_rng(call, "garbage")
    other = call.but(
        key=np.where(hidden, garbage(rng, call.key.shape, call.dtype), call.key),
        value=np.where(hidden, garbage(rng, call.value.shape, call.dtype), call.value),
    )
    yield Trial(other, against=call)


@claim(
    "poison-isolated",
    "NaN or infinity in keys and values that no row sees has no effect (where the subject claims so).",
    theorem="masked_keys_inert",
    keep=MODIFIERS,
    prepare=_some_keys_hidden,
    needs=requires("poison"),
    resembles=("pytorch#101967", "flash-attention#1745"),
)
def poison_isolated(call: AttentionCall) -> Trials:
    hidden = keys_hidden_from_all(call)[..., None]
    if not hidden.any():
        return "no key is hidden from every row"
    rng = call_rng(call, "poison")
    raw = {
        str(name): np.where(hidden, rng.choice([np.nan, np.inf, -np.inf]), getattr(call, name))
        for name in rng.permutation(["key", "value"])[: int(rng.integers(1, 3))]
    }
    yield Trial(call, raw=raw)


@claim(
    "masked-gradient-zero",
    "The gradient of a hidden score, and of a key and value that no row sees, is exactly zero.",
    theorem="masked_key_gradients_zero",
    also=("masked_score_gradient_zero",),
    keep=MODIFIERS,
    prepare=_some_keys_hidden,
    needs=requires("masks", "gradients"),
    resembles=("pytorch#158212",),
)
def masked_gradient_zero(call: AttentionCall) -> Trials:
    if call.grad_output is None:
        return "the call has no output gradient"
    hidden = keys_hidden_from_all(call)[..., None]
    expect = [zeros(name, hidden) for name in ("grad_key", "grad_value")]
    if call.bias is not None and call.bias.shape == call.score_shape:
        expect.append(zeros("grad_bias", ~call.visible))
    yield Trial(call, tensors=(), expect=tuple(expect))


@claim(
    "key-permutation",
    "Reordering keys with their values, mask and bias leaves outputs alone and reorders their gradients.",
    theorem="key_permutation_equivariance",
    keep=("softcap", "sink"),
    small=True,
)
def key_permutation(call: AttentionCall) -> Trials:
    if call.axes.keys < 2:
        return "fewer than two keys"
    order = call_rng(call, "key order").permutation(call.axes.keys)
    views = {"grad_key": ((2, order),), "grad_value": ((2, order),), "grad_bias": ((3, order),)}
    yield Trial(call)
    yield Trial(take_keys(call, order), against=call, views=views)


def _two_segments(call: AttentionCall) -> AttentionCall | None:
    a = call.axes
    if a.queries < 2 or a.keys < 2:
        return None
    rng = call_rng(call, "segments")
    q_cut, k_cut = int(rng.integers(1, a.queries)), int(rng.integers(1, a.keys))
    relation = segments(np.arange(a.queries) >= q_cut, np.arange(a.keys) >= k_cut)
    return with_mask(call, call.visible & relation[None, None])


@claim(
    "packed-equals-separate",
    "Two packed sequences give what each gives alone, forward and backward.",
    theorem="packed_equals_separate",
    also=("packed_gradients_equal_separate", "segments_equal_separate", "segments_law"),
    prepare=_two_segments,
    needs=requires("masks"),
    small=True,
    resembles=("flash-linear-attention#838",),
)
def packed_equals_separate(call: AttentionCall) -> Trials:
    queries, keys = call.axes.queries, call.axes.keys
    # The cut can be read off the mask: the largest block structure consistent with it.
    cut = _cut(np.asarray(call.visible.any(axis=(0, 1))))
    if cut is None:
        return "the mask is not two segments"
    yield Trial(call)
    for rows, cols in (
        (np.arange(cut[0]), np.arange(cut[1])),
        (np.arange(cut[0], queries), np.arange(cut[1], keys)),
    ):
        views = dict.fromkeys(("output", "lse", "grad_query"), ((2, rows),))
        views |= dict.fromkeys(("grad_key", "grad_value"), ((2, cols),))
        yield Trial(take_keys(take_queries(call, rows), cols), against=call, views=views, tensors=tuple(views))


def _cut(relation: np.ndarray) -> tuple[int, int] | None:
    """Some (q, k) with nothing visible in the two off-diagonal blocks, or None."""
    queries, keys = relation.shape
    for q in range(1, queries):
        for k in range(1, keys):
            if not relation[:q, k:].any() and not relation[q:, :k].any():
                return q, k
    return None
