"""The predicate under most properties: observed tensors lie within their allowed errors of the exact ones."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from attnspec.certify.properties.model import Bench, Outcome, Settled, View
from attnspec.certify.subjects.subject import Observation
from attnspec.pyspec import AttentionCall, Judgement
from attnspec.pyspec.oracle.judgement import judge_exact as compare

GRADIENTS = ("grad_query", "grad_key", "grad_value", "grad_bias", "grad_sink")


def expected_tensors(call: AttentionCall, bench: Bench) -> tuple[str, ...]:
    """Tensors that the subject must return for this call."""
    c = bench.subject.capabilities
    names = ["output"]
    if c.returns_lse:
        names.append("lse")
    if call.grad_output is not None and c.gradients:
        names += ["grad_query", "grad_key", "grad_value"]
        if call.bias is not None and c.bias_gradient:
            names.append("grad_bias")
        if call.sink is not None:
            names.append("grad_sink")
    return tuple(names)


def failure(seen: Observation, call: AttentionCall, bench: Bench) -> str | None:
    """What is wrong with a run before any number is compared: an exception, or a tensor missing or misshapen."""
    if seen.error is not None:
        return f"the subject raised: {seen.error}"
    shapes = {
        "output": (*call.score_shape[:3], call.axes.value_width),
        "lse": call.score_shape[:3],
        "grad_query": call.query.shape,
        "grad_key": call.key.shape,
        "grad_value": call.value.shape,
        "grad_bias": None if call.bias is None else call.bias.shape,
        "grad_sink": None if call.sink is None else call.sink.shape,
    }
    for name in expected_tensors(call, bench):
        if name not in seen.tensors:
            return f"{name} is missing"
        if seen.tensors[name].shape != shapes[name]:
            return f"{name} has shape {list(seen.tensors[name].shape)}: expected {list(shapes[name] or ())}"
    return None


def observed(call: AttentionCall, bench: Bench, raw: Mapping[str, np.ndarray] | None = None) -> Observation:
    """A run with every tensor that it should return. Settles the check where the claim or the run ends it."""
    reason = bench.uncovered(call)
    if reason is not None:
        raise Settled(Outcome(skipped=reason))
    seen = bench.observe(call, raw)
    broken = failure(seen, call, bench)
    if broken is not None:
        raise Settled(Outcome(broken=broken, kernel=seen.kernel))
    return seen


def agree(
    call: AttentionCall,
    bench: Bench,
    *,
    tensors: tuple[str, ...] | None = None,
    against: AttentionCall | None = None,
    views: Mapping[str, View] | None = None,
    seen: Observation | None = None,
    bounds: Mapping[str, np.ndarray] | None = None,
) -> Outcome:
    """Run the subject on `call` and hold every tensor to the exact values of `against` (default: the call).

    `views` maps an exact tensor of `against` into the frame of `call`. Bounds are those of `call`.
    """
    reason = bench.uncovered(call)
    if reason is not None:
        return Outcome(skipped=reason)
    seen = bench.observe(call) if seen is None else seen
    broken = failure(seen, call, bench)
    if broken is not None:
        return Outcome(broken=broken, kernel=seen.kernel)
    allowed = bench.bounds(call) if bounds is None else bounds
    oracle = bench.oracle(call if against is None else against)
    names = [n for n in expected_tensors(call, bench) if tensors is None or n in tensors]
    if not names:
        return Outcome(skipped="the subject returns none of the tensors in question")
    judged, empty = [], []
    for name in names:
        view = (views or {}).get(name)
        found = seen.tensors[name]
        judged.append(oracle.judge(name, found, allowed[name], *([] if view is None else [view])))
        if is_vacuous(call, name, allowed[name]):
            empty.append(name)
    return Outcome(judgements=tuple(judged), vacuous=tuple(empty), kernel=seen.kernel)


def zero(tensor: str, observed: np.ndarray, bound: np.ndarray) -> Judgement:
    """A judgement of numbers that are exactly zero, unless an overflow may meet them: where the bound is infinite."""
    return compare(tensor, observed, np.zeros_like(observed), np.where(np.isinf(bound), np.inf, 0.0))


def is_vacuous(call: AttentionCall, tensor: str, bound: np.ndarray) -> bool:
    """Is every bound as wide as the tensor's natural size, so that nearly anything would pass?"""
    if bound.size == 0 or not call.visible.any():
        return False
    size = natural_size(call, tensor)
    return bool(((bound >= size) & (bound > 0) if size else np.isinf(bound)).all())


def natural_size(call: AttentionCall, tensor: str) -> float:
    """A size that no entry of the exact tensor exceeds, from the inputs alone (weights are at most one)."""

    def top(a: np.ndarray | None) -> float:
        return 0.0 if a is None or a.size == 0 else float(np.abs(a).max())

    z = 1.0 if call.multiplier is None else max(top(call.multiplier), 1.0)
    if tensor == "output":
        return z * top(call.value)
    if tensor == "lse":
        return 1.0
    grad_scores = 2 * z * top(call.grad_output) * top(call.value) * call.axes.value_width
    queries = max(call.axes.queries * call.axes.query_heads, 1)
    return {
        "grad_value": z * top(call.grad_output) * queries,
        "grad_bias": grad_scores,
        "grad_sink": grad_scores * queries * call.axes.batch,
        "grad_query": grad_scores * abs(call.scale_value) * top(call.key),
        "grad_key": grad_scores * abs(call.scale_value) * top(call.query) * queries,
    }[tensor]


def joined(*outcomes: Outcome) -> Outcome:
    """One outcome from several runs of the same check; it is skipped only when all of them are."""
    ran = [o for o in outcomes if o.skipped is None]
    if not ran:
        return outcomes[0] if outcomes else Outcome(skipped="nothing to run")
    return Outcome(
        judgements=tuple(j for o in ran for j in o.judgements),
        broken=next((o.broken for o in ran if o.broken), None),
        vacuous=tuple(sorted({v for o in ran for v in o.vacuous})),
        kernel=ran[0].kernel,
    )
