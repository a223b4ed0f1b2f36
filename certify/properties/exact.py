"""Calls whose every intermediate is a value of the format: there the answer must match bit for bit."""

from __future__ import annotations

import numpy as np

from certify.properties import needs
from certify.properties.agree import agree, compare, expected_tensors, failure
from certify.properties.model import Bench, Outcome, Property, call_rng, register
from certify.properties.surgery import with_mask
from pyspec import AttentionCall, Ledger, Scale
from pyspec.domains import Float64Domain
from pyspec.evaluate import evaluate
from pyspec.formats import get_format


def _counting(call: AttentionCall) -> AttentionCall | None:
    """Query zero and value j equal to the unit vector j mod Dv: each output counts visible keys."""
    a = call.axes
    if 0 in (*call.score_shape, a.value_width):
        return None
    hot = (np.arange(a.keys)[:, None] % a.value_width) == np.arange(a.value_width)[None, :]
    plain = call.but(
        query=np.zeros_like(call.query),
        value=np.broadcast_to(hot.astype(np.float64), call.value.shape).copy(),
        dropout=None,
    )
    return plain.but(bias=np.zeros_like(call.bias)) if call.bias is not None else plain


def _counts(call: AttentionCall, bench: Bench) -> Outcome:
    return agree(call, bench, tensors=("output", "lse", "grad_key", "grad_value"))


def _witness(call: AttentionCall) -> AttentionCall | None:
    """Zero keys and no bias, 2^m visible keys a row, values ±1, small integer queries and output gradients.

    Weights are then 2^-m with m ≤ 2, and every product and sum is a dyadic number of few bits.
    """
    a = call.axes
    if 0 in (*call.score_shape, a.key_width, a.value_width):
        return None
    rng = call_rng(call, "witness")
    most = int(np.log2(a.keys))
    visible = np.zeros(call.score_shape, dtype=bool)
    for row in np.ndindex(call.score_shape[:3]):
        count = 2 ** int(rng.integers(0, min(most, 2) + 1))
        visible[row][rng.choice(a.keys, size=count, replace=False)] = True
    sign = rng.choice([-1.0, 1.0], call.value.shape)
    grad = None
    if call.grad_output is not None:
        grad = np.zeros_like(call.grad_output)
        grad[..., int(rng.integers(a.value_width))] = 1.0
    plain = call.but(
        query=rng.integers(-1, 2, call.query.shape).astype(np.float64),
        key=np.zeros_like(call.key),
        value=sign,
        scale=Scale(0.25, call.scale.placement),
        dropout=None,
        bias=None,
        encoding="bool" if call.encoding != "additive" else "additive",
        grad_output=grad,
    )
    return with_mask(plain, visible)


def _bits(call: AttentionCall, bench: Bench) -> Outcome:
    reason = bench.uncovered(call)
    if reason is not None:
        return Outcome(skipped=reason)
    if call.key.any():
        return Outcome(skipped="the scores are not all equal")
    seen = bench.observe(call)
    broken = failure(seen, call, bench)
    if broken is not None:
        return Outcome(broken=broken)
    exact = evaluate(Float64Domain(), call)
    sums_exactly = _sums_exactly(call, bench.ledger_for(call.dtype))
    names = [n for n in expected_tensors(call, bench) if n in sums_exactly]
    judged = [compare(n, seen.tensors[n], exact[n], np.zeros_like(exact[n])) for n in names]
    return Outcome(judgements=tuple(judged), kernel=seen.kernel)


def _sums_exactly(call: AttentionCall, ledger: Ledger) -> tuple[str, ...]:
    """Tensors of a witness in which no ordering of the sum can round.

    Terms of the value gradient are multiples of 2^-2 (a weight), of the key gradient multiples of 2^-6 (two
    weights times the scale, whose root is exact too), so a sum is exact when the sizes add up to no more than
    the step times 2^precision. Weights recomputed from an inexact LSE are exact only after a cast.
    """
    names = ["output"]
    if call.grad_output is None:
        return tuple(names)
    recast = {"consumed", "scores_grad"} <= set(ledger.stores) and ledger.storage != ledger.compute
    if ledger.weights == "recomputed" and not recast:
        return tuple(names)
    capacity = 2.0 ** get_format(call.dtype).precision
    count = np.maximum(call.visible.sum(axis=-1, keepdims=True), 1)
    weight = call.visible / count
    value_sizes = np.swapaxes(weight, -1, -2) @ np.abs(call.grad_output)
    # A centred gradient is at most 2, the scale is 1/4.
    key_sizes = 0.5 * (np.swapaxes(weight, -1, -2) @ np.abs(call.query))
    members = max((call.head_map.count(h) for h in set(call.head_map)), default=1)
    if value_sizes.max(initial=0.0) * members <= capacity * 2.0**-2:
        names.append("grad_value")
    if key_sizes.max(initial=0.0) * members <= capacity * 2.0**-6:
        names.append("grad_key")
    return (*names, "grad_query")


register(
    Property(
        id="counting-probe",
        claim="With equal scores and unit-vector values, each output counts the visible keys of its column.",
        theorem="equal_scores_average_values",
        check=_counts,
        prepare=_counting,
        catches=("tt-metal#41215", "pytorch#188322"),
        also=("ties_share_equally",),
    )
)
register(
    Property(
        id="exactness-witness",
        claim="Where every intermediate is a value of the format, outputs and gradients match bit for bit.",
        theorem=None,
        basis="exact arithmetic: no rounding can occur, and exp(0) = 1",
        check=_bits,
        prepare=_witness,
        needs=needs.masks,
    )
)
