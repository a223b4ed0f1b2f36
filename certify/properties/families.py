"""Scores of every family, the scale that multiplies them once, and the softmax that normalises them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np

from attnspec.certify.claims import Capabilities, requires
from attnspec.certify.properties.agreement import SHARE
from attnspec.certify.properties.wrong_scales import wrong_multipliers
from attnspec.certify.trials.diagnosis import Tensors, dot_scores, fitting, output_of, softmax_weights
from attnspec.certify.trials.property import Trials, claim, without_modifiers
from attnspec.certify.trials.trial import Trial
from attnspec.pyspec import AttentionCall, CallError
from attnspec.pyspec.calls.errors import FamilyError
from attnspec.pyspec.calls.formats import get_format, round_to
from attnspec.pyspec.calls.score import Additive, Bilinear, Cosine, Family
from attnspec.pyspec.handover.reduce_to_dot import reduce_to_dot
from attnspec.pyspec.study.normalisers import entmax_rows, sparsemax_rows
from attnspec.strategies.derived import call_rng

FORWARD_AND_KEYS = ("output", "lse", "grad_key", "grad_value")


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
        return call.but(score=family)
    except FamilyError:
        return None


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


def _named(call: AttentionCall, observed: Tensors, allowed: Tensors) -> Iterable[str]:
    return fitting({n: {"output": output_of(call, u)} for n, u in _wrong_scores(call).items()}, observed, allowed)


def _agrees(name: str, call: AttentionCall) -> Trials:
    drawn = _draw(call, name)
    if drawn is None:
        return f"no {name} score of this call"
    yield Trial(drawn)


for _name, _claim in (
    ("bilinear", "A bilinear score is q W kᵀ: output and gradients, the metric's among them, follow from it."),
    ("additive", "An additive score is vᵀ tanh(W_q q + W_k k + b), pair by pair, and no product of matrices."),
    ("cosine", "A cosine score is q · k over both lengths, and a vector of length zero follows the named policy."),
):
    claim(
        f"{_name}-agreement",
        _claim,
        basis="definition of the family; backward is the transpose of its JVP (tested in exact arithmetic)",
        needs=requires(f"{_name}_score"),
        diagnose=_named,
        share=SHARE,
        small=True,
    )(partial(_agrees, _name))


@claim(
    "cosine-ignores-length",
    "A query four times as long has the same cosine scores.",
    basis="homogeneity: the length cancels",
    needs=requires("cosine_score"),
    small=True,
)
def cosine_ignores_length(call: AttentionCall) -> Trials:
    drawn = _draw(call, "cosine")
    if drawn is None:
        return "no cosine score of this call"
    longer = 4.0 * drawn.query
    if (np.abs(longer) > get_format(call.dtype).largest).any():
        return "the longer query leaves the format's range"
    yield Trial(drawn.but(query=longer), against=drawn, tensors=FORWARD_AND_KEYS)


@claim(
    "bilinear-reduces-to-dot",
    "A bilinear call reduced exactly to dot products, q' = q W, gives the bilinear result.",
    theorem="bilinear_reduces_to_dot",
    small=True,
)
def bilinear_reduces_to_dot(call: AttentionCall, claims: Capabilities) -> Trials:
    """A bilinear call whose reduction is exact, run by the subject as a call of dot products."""
    rng = call_rng(call, "reduction")
    width = call.axes.key_width
    metric = rng.integers(-1, 2, (1, width, width)).astype(np.float64)
    query = rng.integers(-3, 4, call.query.shape).astype(np.float64)
    bilinear = call.but(query=query, score=Bilinear(metric))
    reduced = reduce_to_dot(bilinear).call
    if not claims.any_scale:
        # The reduced call gives its multiplier as a number; a subject with a default only has it by default.
        reduced = reduced.but(scale=call.scale)
    yield Trial(reduced, against=bilinear, tensors=FORWARD_AND_KEYS)


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
    rng = call_rng(call, "scale-gate")
    query = rng.integers(-2, 3, call.query.shape).astype(np.float64)
    key = rng.integers(-2, 3, call.key.shape).astype(np.float64)
    try:
        call = _two_heads(call.but(query=query, key=key))
    except CallError:
        return None
    value = float(rng.choice(_DECLARED)) if rng.random() < 0.75 else None
    return call.but(scale=value)


def _default_where_unclaimed(call: AttentionCall, claims: Capabilities) -> AttentionCall:
    """The call with the default scale where no other is claimed."""
    return call if claims.any_scale else call.but(scale=None)


def _wrong_scale(call: AttentionCall, observed: Tensors, allowed: Tensors) -> Iterable[str]:
    u = dot_scores(call)
    wrong = wrong_multipliers(call.scale_value, call.axes.key_width, call.axes.query_heads)
    return fitting({n: {"output": output_of(call, u, scale=x)} for n, x in wrong.items()}, observed, allowed)


@claim(
    "scale-gate",
    "The declared multiplier is applied once, is no denominator, and its default comes from the key width.",
    theorem="scale_placements_equal",
    also=("scale_moves_into_queries",),
    prepare=_declared_scale,
    diagnose=_wrong_scale,
    small=True,
    within_claim=False,
    resembles=("dfdx#171", "maxtext#1370"),
)
def scale_gate(call: AttentionCall, claims: Capabilities) -> Trials:
    yield Trial(_default_where_unclaimed(call, claims))


def _gaps(call: AttentionCall) -> AttentionCall | None:
    """Scores with gaps of one to eight, where sparse maps drop keys that softmax keeps."""
    if call.axes.any_zero or call.axes.keys < 2:
        return None
    rng = call_rng(call, "gaps")
    query, key = np.zeros_like(call.query), np.zeros_like(call.key)
    query[..., 0] = rng.integers(1, 3, query.shape[:-1])
    key[..., 0] = rng.integers(0, 5, key.shape[:-1])
    return call.but(query=query, key=key, scale=1.0, dropout=None)


def _wrong_normaliser(call: AttentionCall, observed: Tensors, allowed: Tensors) -> Iterable[str]:
    u = dot_scores(call)
    maps = {
        "sparsemax instead of softmax": sparsemax_rows,
        "1.5-entmax instead of softmax": lambda visible, s: entmax_rows(visible, s, 1.5),
        "powers of two instead of e": lambda visible, s: softmax_weights(visible, s * np.log(2.0)),
        "sigmoid instead of softmax": lambda visible, s: np.where(visible, 1.0 / (1.0 + np.exp(-s)), 0.0),
        "exponentials not normalised": lambda visible, s: np.where(visible, np.exp(s), 0.0),
        "hard maximum instead of softmax": _hard,
    }
    return fitting({n: {"output": output_of(call, u, weights=rows)} for n, rows in maps.items()}, observed, allowed)


def _hard(visible: np.ndarray, scores: np.ndarray) -> np.ndarray:
    top = np.max(scores, axis=-1, keepdims=True, initial=-np.inf, where=visible)
    hits = visible & (scores == top)
    return hits / np.maximum(hits.sum(axis=-1, keepdims=True), 1)


@claim(
    "normaliser-is-softmax",
    "Rows are normalised by softmax, and by no sparse, unnormalised or other map.",
    theorem="common_factor_cancels",
    prepare=_gaps,
    diagnose=_wrong_normaliser,
    small=True,
    within_claim=False,
)
def normaliser_is_softmax(call: AttentionCall, claims: Capabilities) -> Trials:
    yield Trial(_default_where_unclaimed(call, claims), tensors=("output", "lse"))
