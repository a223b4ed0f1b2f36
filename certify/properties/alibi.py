"""ALiBi: a penalty that grows with the distance of query and key, by a slope that each query head has."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from attnspec.certify.claims import requires
from attnspec.certify.properties.agreement import SHARE
from attnspec.certify.trials.diagnosis import Tensors, dot_scores, fitting, output_of
from attnspec.certify.trials.property import MODIFIERS, Trials, claim
from attnspec.certify.trials.trial import Trial
from attnspec.pyspec import AttentionCall
from attnspec.pyspec.alibi import distances
from attnspec.pyspec.calls.formats import round_to
from attnspec.strategies.derived import call_rng, take_queries


def _sloped(call: AttentionCall) -> AttentionCall:
    """Slopes that no head shares with another, of either sign, and rows and keys far enough apart to tell."""
    rng = call_rng(call, "slopes")
    slopes = 2.0 ** -np.arange(1.0, call.axes.query_heads + 1) * rng.choice([1.0, 2.0, -1.0])
    return call.but(slopes=round_to(call.dtype, slopes))


def _other_slopes(call: AttentionCall, observed: Tensors, allowed: Tensors) -> Iterable[str]:
    if call.slopes is None or call.softcap is not None or call.sink is not None:
        return []
    queries, keys = call.axes.queries, call.axes.keys
    right, m = distances(queries, keys), call.slopes[:, None, None]
    upper_left = np.abs(np.arange(queries)[:, None] - np.arange(keys)).astype(np.float64)
    u, alpha = dot_scores(call), call.scale_value
    penalties = {
        "slopes ignored": np.zeros_like(m * right),
        "distances from the upper left corner": m * upper_left,
        "distances added instead of subtracted": -m * right,
        "the first head's slope for all heads": np.broadcast_to(m[:1], m.shape) * right,
        "slopes multiplied by the scale": alpha * m * right,
    }
    wrong = {n: {"output": output_of(call, alpha * u - p, scale=1.0)} for n, p in penalties.items()}
    return fitting(wrong, observed, allowed)


@claim(
    "alibi-agreement",
    "Slope times distance is subtracted from each score, and the distance is zero on the lower-right diagonal.",
    theorem="alibi_is_a_bias",
    also=("alibi_forward_over_duals", "alibi_may_count_from_the_first_key"),
    keep=MODIFIERS,
    prepare=_sloped,
    needs=requires("slopes"),
    diagnose=_other_slopes,
    share=SHARE,
)
def alibi_agreement(call: AttentionCall) -> Trials:
    yield Trial(call)


@claim(
    "alibi-slope-gradient",
    "The gradient of a slope is minus the sum of distance times score gradient over batch, queries and keys.",
    theorem="alibi_slope_gradient_is_weighted_score_gradient",
    also=("alibi_slope_gradient_under_softcap",),
    keep=MODIFIERS,
    prepare=_sloped,
    needs=requires("slopes", "gradients"),
)
def alibi_slope_gradient(call: AttentionCall) -> Trials:
    if call.grad_output is None:
        return "the call has no output gradient"
    yield Trial(call, tensors=("grad_slopes",))


@claim(
    "alibi-zero-slope",
    "Slopes of zero change nothing.",
    theorem="alibi_zero_slope_is_plain_attention",
    keep=MODIFIERS,
    needs=requires("slopes"),
    small=True,
)
def alibi_zero_slope(call: AttentionCall) -> Trials:
    plain = call.but(slopes=None)
    zero = call.but(slopes=np.zeros(call.axes.query_heads))
    yield Trial(zero, against=plain, tensors=("output", "lse", "grad_query", "grad_key", "grad_value", "grad_bias"))


@claim(
    "alibi-cached-decoding",
    "The last queries over the cached keys keep their distances, and give their rows of the whole.",
    theorem="alibi_cached_distances",
    prepare=_sloped,
    keep=("slopes",),
    needs=requires("slopes", "masks"),
    small=True,
)
def alibi_cached_decoding(call: AttentionCall) -> Trials:
    queries = call.axes.queries
    if queries < 2 or 0 in call.score_shape:
        return "fewer than two query rows, or no scores"
    rows = np.arange(int(call_rng(call, "cached").integers(1, queries)), queries)
    tensors = ("output", "lse", "grad_query")
    views = dict.fromkeys(tensors, ((2, rows),))
    yield Trial(take_queries(call, rows), against=call, tensors=tensors, views=views)
