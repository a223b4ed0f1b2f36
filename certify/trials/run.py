"""What a run must return, what is wrong with one before any number is compared, and whether a bound says anything."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from attnspec.certify.claims import Capabilities
from attnspec.certify.observation import Observation
from attnspec.certify.trials.outcome import Failure
from attnspec.certify.trials.trial import Trial
from attnspec.pyspec import AttentionCall
from attnspec.pyspec.calls.features import DIFFERENTIATED

# Tensors that have a row for each query, which no other query reaches.
ROWWISE = ("output", "lse", "grad_query")
GRADIENTS = tuple(f"grad_{name}" for name in DIFFERENTIATED)


def expected_tensors(call: AttentionCall, claims: Capabilities) -> tuple[str, ...]:
    """Tensors that a subject with these claims must return for this call."""
    names = ["output"]
    if claims.returns_lse:
        names.append("lse")
    if call.grad_output is not None and claims.gradients:
        given = [n for n in DIFFERENTIATED if getattr(call, n) is not None]
        names += [f"grad_{n}" for n in given if n != "bias" or claims.bias_gradient]
    if claims.returns_weights and call.dropout is not None and call.dropout.returned_weights != "none":
        names.append("weights")
    return tuple(names)


def wanted_shapes(call: AttentionCall) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor that a subject may return for this call."""
    shapes: dict[str, tuple[int, ...]] = {
        "output": (*call.score_shape[:3], call.axes.value_width),
        "lse": call.score_shape[:3],
        "weights": call.score_shape,
    }
    for name in DIFFERENTIATED:
        array = getattr(call, name)
        if array is not None:
            shapes[f"grad_{name}"] = array.shape
    return shapes | {f"grad_{n}": a.shape for n, a in call.score.parameters().items()}


def failures(seen: Observation, call: AttentionCall, claims: Capabilities) -> Iterator[Failure]:
    """What is wrong with a run before any number is compared: at most one failure."""
    if seen.error is not None:
        what = {"raised": "the subject raised: "}.get(seen.ending, "")
        yield Failure(seen.ending, "", f"{what}{seen.error}")
        return
    expected, shapes = expected_tensors(call, claims), wanted_shapes(call)
    for name in expected:
        if name not in seen.tensors:
            yield Failure("missing", name, f"{name} is missing")
            return
    for name in (*expected, *(n for n in seen.tensors if n in shapes and n not in expected)):
        found = seen.tensors[name].shape
        if found != shapes[name]:
            yield Failure("shape", name, f"{name} has shape {list(found)}: expected {list(shapes[name])}")
            return


def judged_tensors(trial: Trial, seen: Observation, claims: Capabilities) -> list[str]:
    """Names of the tensors that must agree: those expected, and gradients of score parameters that were returned."""
    names = list(expected_tensors(trial.call, claims))
    names += [n for n in (f"grad_{p}" for p in trial.call.score.parameters()) if n in seen.tensors]
    return [n for n in names if trial.tensors is None or n in trial.tensors]


def is_vacuous(call: AttentionCall, tensor: str, bound: np.ndarray) -> bool:
    """Is every bound as wide as the tensor's natural size, so that nearly anything would pass?"""
    if bound.size == 0 or not call.visible.any():
        return False
    size = natural_size(call, tensor)
    return bool(((bound >= size) & (bound > 0) if size else np.isinf(bound)).all())


def natural_size(call: AttentionCall, tensor: str) -> float:
    """A size that no entry of the exact tensor exceeds, from the inputs alone (weights are at most one); 0: unknown."""

    def top(a: np.ndarray | None) -> float:
        return 0.0 if a is None or a.size == 0 else float(np.abs(a).max())

    z = 1.0 if call.multiplier is None else max(top(call.multiplier), 1.0)
    if tensor == "output":
        return z * top(call.value)
    if tensor == "lse":
        return 1.0
    if tensor == "weights":
        return z
    if call.score.name != "dot":
        return 0.0
    grad_scores = 2 * z * top(call.grad_output) * top(call.value) * call.axes.value_width
    queries = max(call.axes.queries * call.axes.query_heads, 1)
    return {
        "grad_value": z * top(call.grad_output) * queries,
        "grad_bias": grad_scores,
        "grad_sink": grad_scores * queries * call.axes.batch,
        "grad_slopes": grad_scores * queries * call.axes.batch * (call.axes.queries + call.axes.keys),
        "grad_query": grad_scores * abs(call.scale_value) * top(call.key),
        "grad_key": grad_scores * abs(call.scale_value) * top(call.query) * queries,
    }[tensor]
