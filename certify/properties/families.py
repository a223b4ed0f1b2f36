"""Scores of every family, the scale that multiplies them once, and the softmax that normalises them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from attnspec.certify.properties.agree import agree, expected_tensors, is_vacuous, observed
from attnspec.certify.properties.explain import dot_scores, explained, output_of, without_modifiers
from attnspec.certify.properties.model import Bench, Outcome, Property, call_rng, register
from attnspec.certify.subjects.claims import requires
from attnspec.pyspec import AttentionCall, CallError
from attnspec.pyspec.calls.formats import get_format, round_to
from attnspec.pyspec.families import (
    Additive,
    Bilinear,
    Cosine,
    Family,
    FamilyError,
    FamilyOracle,
    family_bounds,
    reduce_to_dot,
)
from attnspec.pyspec.families.kinds import family_call
from attnspec.pyspec.scale import wrong_multipliers
from attnspec.pyspec.study.normalisers import entmax_rows, sparsemax_rows


def _draw(call: AttentionCall, name: str) -> AttentionCall | None:
    """The call with scores of that family, its parameters drawn from the call itself."""
    call = without_modifiers(call)
    rng = call_rng(call, name)
    a = call.axes
    heads = int(rng.choice([1, a.query_heads])) if a.query_heads else 1

    def draw(*shape: int) -> np.ndarray:
        return round_to(call.dtype, rng.standard_normal(shape))

    family: Family
    if name == "bilinear":
        family = Bilinear(draw(heads, a.key_width, a.key_width))
    elif name == "additive":
        width = int(rng.integers(1, 5))
        family = Additive(
            draw(heads, width, a.key_width),
            draw(heads, width, a.key_width),
            draw(heads, width),
            round_to(call.dtype, 2.0 * rng.standard_normal((heads, width))),
        )
    else:
        family = Cosine("zero")
    if call.scale is None and name != "bilinear":
        call = call.but(scale=float(rng.choice([1.0, 4.0])))
    try:
        return family_call(call, family)
    except FamilyError:
        return None


def judge_family(call: AttentionCall, bench: Bench, mistakes: dict[str, np.ndarray]) -> Outcome:
    """Hold the subject to the exact tensors of a call of any family; `mistakes` are unscaled scores by name."""
    seen = observed(call, bench)
    allowed = family_bounds(call, bench.ledger_for(call.dtype))
    oracle = FamilyOracle(call)
    names = list(expected_tensors(call, bench))
    names += [n for n in (f"grad_{p}" for p in call.score.parameters()) if n in seen.tensors]
    for name in names:
        if seen.tensors[name].shape != allowed[name].shape:
            return Outcome(
                broken=f"{name} has shape {list(seen.tensors[name].shape)}: expected {list(allowed[name].shape)}"
            )
    judged = tuple(oracle.judge(n, seen.tensors[n], allowed[n]) for n in names)
    vacuous = tuple(n for n in names if _says_nothing(call, n, allowed[n]))
    outcome = Outcome(judgements=judged, vacuous=vacuous, kernel=seen.kernel)
    wrong = {n: {"output": output_of(call, u)} for n, u in mistakes.items()} if outcome.refuted else {}
    return explained(outcome, seen.tensors, allowed, wrong)


def _says_nothing(call: AttentionCall, name: str, bound: np.ndarray) -> bool:
    if name in ("output", "lse"):
        return is_vacuous(call, name, bound)
    return bound.size > 0 and bool(np.isinf(bound).all())


def _wrong_scores(call: AttentionCall) -> dict[str, np.ndarray]:
    """Unscaled scores of the usual confusions of the call's family, by name."""
    family = call.score
    q, k = call.query, call.key[:, list(call.head_map)]
    kt = np.swapaxes(k, -1, -2)
    with np.errstate(all="ignore"):
        if isinstance(family, Bilinear):
            return {
                "metric ignored": q @ kt,
                "metric transposed": q @ np.swapaxes(family.metric, -1, -2) @ kt,
            }
        if isinstance(family, Cosine):
            units = [x / np.where(n == 0, 1.0, n) for x in (q, k) for n in (np.linalg.norm(x, axis=-1, keepdims=True),)]
            return {
                "cosine without norms": q @ kt,
                "only the query normalised": units[0] @ kt,
                "only the key normalised": q @ np.swapaxes(units[1], -1, -2),
            }
        assert isinstance(family, Additive)
        query_term = q @ np.swapaxes(family.query_map, -1, -2)
        key_term = k @ np.swapaxes(family.key_map, -1, -2)
        pairs = query_term[..., :, None, :] + key_term[..., None, :, :]
        v = family.vector[:, None, :, None]
        return {
            "additive score replaced by a product of matrices": query_term @ np.swapaxes(key_term, -1, -2),
            "additive score replaced by a product of query and key": q @ kt,
            "tanh left out": ((pairs + family.offset[:, None, None, :]) @ v)[..., 0],
            "offset left out": (np.tanh(pairs) @ v)[..., 0],
        }


def _agrees(name: str) -> Callable[[AttentionCall, Bench], Outcome]:
    def check(call: AttentionCall, bench: Bench) -> Outcome:
        unclaimed = requires(name)(bench.subject.capabilities)
        if unclaimed is not None:
            return Outcome(skipped=unclaimed)
        drawn = _draw(call, name)
        if drawn is None:
            return Outcome(skipped=f"no {name} score of this call")
        return judge_family(drawn, bench, _wrong_scores(drawn))

    return check


def _length_free(call: AttentionCall, bench: Bench) -> Outcome:
    unclaimed = requires("cosine")(bench.subject.capabilities)
    if unclaimed is not None:
        return Outcome(skipped=unclaimed)
    drawn = _draw(call, "cosine")
    if drawn is None:
        return Outcome(skipped="no cosine score of this call")
    longer = 4.0 * drawn.query
    if (np.abs(longer) > get_format(call.dtype).largest).any():
        return Outcome(skipped="the longer query leaves the format's range")
    moved = drawn.but(query=longer)
    seen = observed(moved, bench)
    names = [n for n in expected_tensors(moved, bench) if n in ("output", "lse", "grad_key", "grad_value")]
    allowed = family_bounds(moved, bench.ledger_for(call.dtype))
    oracle = FamilyOracle(drawn)
    return Outcome(
        judgements=tuple(oracle.judge(n, seen.tensors[n], allowed[n]) for n in names),
        vacuous=tuple(n for n in names if _says_nothing(moved, n, allowed[n])),
        kernel=seen.kernel,
    )


def _reduced(call: AttentionCall, bench: Bench) -> Outcome:
    """A bilinear call whose reduction is exact, run by the subject as a call of dot products."""
    call = without_modifiers(call)
    rng = call_rng(call, "reduction")
    width = call.axes.key_width
    metric = rng.integers(-1, 2, (1, width, width)).astype(np.float64)
    query = rng.integers(-3, 4, call.query.shape).astype(np.float64)
    bilinear = family_call(call.but(query=query), Bilinear(metric))
    reduced = reduce_to_dot(bilinear).call
    if bench.uncovered(reduced) is not None:
        # The reduced call gives its multiplier as a number; a subject with a default only has it by default.
        reduced = reduced.but(scale=call.scale)
    seen = observed(reduced, bench)
    names = [n for n in expected_tensors(reduced, bench) if n in ("output", "lse", "grad_key", "grad_value")]
    allowed, oracle = bench.bounds(reduced), FamilyOracle(bilinear)
    return Outcome(
        judgements=tuple(oracle.judge(n, seen.tensors[n], allowed[n]) for n in names),
        vacuous=tuple(n for n in names if is_vacuous(reduced, n, allowed[n])),
        kernel=seen.kernel,
    )


_DECLARED = (0.25, 0.375, 3.0, 0.125)


def _two_heads(call: AttentionCall) -> AttentionCall:
    """The call with at least two query heads, so that the width of the model is not the width of a key."""
    a = call.axes
    if a.query_heads != 1 or a.key_heads != 1:
        return call
    twice = {n: np.repeat(getattr(call, n), 2, axis=1) for n in ("query", "key", "value")}
    grad = None if call.grad_output is None else np.repeat(call.grad_output, 2, axis=1)
    return call.but(**twice, grad_output=grad, head_map=(0, 1))


def _declared_scale(call: AttentionCall) -> AttentionCall | None:
    """Scores small enough to tell multipliers apart, and a multiplier that no mistake leaves as it is."""
    if call.axes.any_zero:
        return None
    call = without_modifiers(call)
    rng = call_rng(call, "scale-gate")
    query = rng.integers(-2, 3, call.query.shape).astype(np.float64)
    key = rng.integers(-2, 3, call.key.shape).astype(np.float64)
    try:
        call = _two_heads(call.but(query=query, key=key))
    except CallError:
        return None
    value = float(rng.choice(_DECLARED)) if rng.random() < 0.75 else None
    return call.but(scale=value)


def _scale_gate(call: AttentionCall, bench: Bench) -> Outcome:
    if call.scale is not None and not bench.subject.capabilities.any_scale:
        call = call.but(scale=None)
    outcome = agree(call, bench)
    if not outcome.refuted or outcome.broken is not None:
        return outcome
    seen, allowed = bench.observe(call), bench.bounds(call)
    u = dot_scores(call)
    wrong = wrong_multipliers(call.scale_value, call.axes.key_width, call.axes.query_heads)
    return explained(
        outcome, seen.tensors, allowed, {n: {"output": output_of(call, u, scale=x)} for n, x in wrong.items()}
    )


def _gaps(call: AttentionCall) -> AttentionCall | None:
    """Scores with gaps of one to eight, where sparse maps drop keys that softmax keeps."""
    if call.axes.any_zero or call.axes.keys < 2:
        return None
    call = without_modifiers(call)
    rng = call_rng(call, "gaps")
    query, key = np.zeros_like(call.query), np.zeros_like(call.key)
    query[..., 0] = rng.integers(1, 3, query.shape[:-1])
    key[..., 0] = rng.integers(0, 5, key.shape[:-1])
    return call.but(query=query, key=key, scale=1.0, dropout=None)


def _is_softmax(call: AttentionCall, bench: Bench) -> Outcome:
    if not bench.subject.capabilities.any_scale:
        call = call.but(scale=None)
    outcome = agree(call, bench, tensors=("output", "lse"))
    if not outcome.refuted or outcome.broken is not None:
        return outcome
    seen, allowed = bench.observe(call), bench.bounds(call)
    u = dot_scores(call)
    maps = {
        "sparsemax instead of softmax": sparsemax_rows,
        "1.5-entmax instead of softmax": lambda visible, s: entmax_rows(visible, s, 1.5),
        "powers of two instead of e": lambda visible, s: _softmax_base(visible, s, 2.0),
        "sigmoid instead of softmax": lambda visible, s: np.where(visible, 1.0 / (1.0 + np.exp(-s)), 0.0),
        "exponentials not normalised": lambda visible, s: np.where(visible, np.exp(s), 0.0),
        "hard maximum instead of softmax": _hard,
    }
    wrong = {n: {"output": output_of(call, u, weights=rows)} for n, rows in maps.items()}
    return explained(outcome, seen.tensors, allowed, wrong)


def _softmax_base(visible: np.ndarray, scores: np.ndarray, base: float) -> np.ndarray:
    from attnspec.certify.properties.explain import softmax_weights

    return softmax_weights(visible, scores * np.log(base))


def _hard(visible: np.ndarray, scores: np.ndarray) -> np.ndarray:
    top = np.max(scores, axis=-1, keepdims=True, initial=-np.inf, where=visible)
    hits = visible & (scores == top)
    return hits / np.maximum(hits.sum(axis=-1, keepdims=True), 1)


for _name, _claim in (
    ("bilinear", "A bilinear score is q W kᵀ: output and gradients, the metric's among them, follow from it."),
    ("additive", "An additive score is vᵀ tanh(W_q q + W_k k + b), pair by pair, and no product of matrices."),
    ("cosine", "A cosine score is q · k over both lengths, and a vector of length zero follows the named policy."),
):
    register(
        Property(
            id=f"{_name}-agreement",
            claim=_claim,
            theorem=None,
            basis="definition of the family; backward is the transpose of its JVP (tested in exact arithmetic)",
            check=_agrees(_name),
            needs=requires(_name),
            small=True,
        )
    )
register(
    Property(
        id="cosine-ignores-length",
        claim="A query four times as long has the same cosine scores.",
        theorem=None,
        basis="homogeneity: the length cancels",
        check=_length_free,
        needs=requires("cosine"),
        small=True,
    )
)
register(
    Property(
        id="bilinear-reduces-to-dot",
        claim="A bilinear call reduced exactly to dot products, q' = q W, gives the bilinear result.",
        theorem="bilinear_reduces_to_dot",
        check=_reduced,
        small=True,
    )
)
register(
    Property(
        id="scale-gate",
        claim="The declared multiplier is applied once, is no denominator, and its default comes from the key width.",
        theorem="scale_placements_equal",
        also=("scale_moves_into_queries",),
        check=_scale_gate,
        prepare=_declared_scale,
        small=True,
        catches=("dfdx#171", "maxtext#1370"),
    )
)
register(
    Property(
        id="normaliser-is-softmax",
        claim="Rows are normalised by softmax, and by no sparse, unnormalised or other map.",
        theorem="common_factor_cancels",
        check=_is_softmax,
        prepare=_gaps,
        small=True,
    )
)
