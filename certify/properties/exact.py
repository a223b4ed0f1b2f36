"""Calls whose every intermediate is a value of the format: there the answer must match bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from attnspec.certify.claims import requires
from attnspec.certify.trials.expectations import entry
from attnspec.certify.trials.outcome import Failure
from attnspec.certify.trials.property import Trials, claim
from attnspec.certify.trials.run import GRADIENTS, expected_tensors
from attnspec.certify.trials.trial import Expectation, Run, Trial, recorded
from attnspec.pyspec import AttentionCall, Judgement, Ledger
from attnspec.pyspec.calls.formats import get_format, is_representable
from attnspec.pyspec.domains import Float64Domain
from attnspec.pyspec.evaluate import evaluate
from attnspec.pyspec.oracle.judgement import judge_exact
from attnspec.strategies.exact_calls import counting_probe_call, witness

LOW = ("bfloat16", "float16")


@claim(
    "counting-probe",
    "With equal scores and unit-vector values, each output counts the visible keys of its column.",
    theorem="equal_scores_average_values",
    also=("ties_share_equally",),
    prepare=counting_probe_call,
    resembles=("tt-metal#41215", "pytorch#188322"),
)
def counting_probe(call: AttentionCall) -> Trials:
    yield Trial(call, tensors=("output", "lse", "grad_key", "grad_value"))


@recorded
@dataclass(frozen=True)
class WithoutRounding(Expectation):
    """Tensors that a kernel with the subject's ledger computes without rounding match bit for bit."""

    @property
    def finds(self) -> tuple[str, ...]:
        """Names of judgements, or kinds of failures."""
        return ("output", *GRADIENTS)

    def judge(self, run: Run) -> Iterator[Judgement | Failure]:
        """A judgement of each such tensor."""
        call = run.trial.call
        exact = evaluate(Float64Domain(), call)
        sums_exactly = _sums_exactly(call, run.held.ledger_for(call.dtype), exact["output"])
        for name in expected_tensors(call, run.held.claims):
            if name in sums_exactly:
                # A finished tensor is cast once: entries that the format cannot hold say nothing here.
                allowed = np.where(is_representable(call.dtype, exact[name]), 0.0, np.inf)
                yield judge_exact(name, run.tensors[name], exact[name], allowed)

    def source(self, shown: Judgement | Failure, trial: Trial) -> list[str]:
        """The entry itself."""
        assert isinstance(shown, Judgement)
        return [f"got = {entry(shown.tensor, shown.index)}"]


def _sums_exactly(call: AttentionCall, ledger: Ledger, output: np.ndarray) -> tuple[str, ...]:
    """Tensors of a witness that a kernel with this ledger computes without rounding before its final cast.

    A sum of multiples of some power of two is exact in any order when the sizes add up to no more than that power
    times 2^precision. Weights recomputed from an inexact LSE are exact only after a cast, and only if nothing but
    the output enters D.
    """
    count = np.maximum(call.visible.sum(axis=-1, keepdims=True), 1)
    weight = call.visible / count
    heads = list(call.head_map)
    if not _exact_sum(weight, call.value[:, heads], ledger.compute) or not is_representable(call.dtype, weight).all():
        return ()
    grad = call.grad_output
    recast = {"consumed", "scores_grad"} <= set(ledger.stores) and ledger.storage != ledger.compute
    if grad is None or (ledger.weights == "recomputed" and not (recast and ledger.delta == "output")):
        return ("output",)
    back = grad @ np.swapaxes(call.value[:, heads], -1, -2)
    scores = weight * (back - (weight * back).sum(axis=-1, keepdims=True))
    stages = {
        "consumed_grad": back,
        "weights_grad": back,
        "scores_grad": scores,
        "scaled_grad": call.scale_value * scores,
    }
    kept = all(is_representable(call.dtype, a[call.visible]).all() for n, a in stages.items() if n in ledger.stores)
    if not kept or (ledger.delta == "output" and not is_representable(call.dtype, output).all()):
        return ("output",)
    # Running sums after each tile may be kept in storage, and sums over grouped heads.
    own = ledger.compute if ledger.gradient_tile is None else ledger.storage
    shared = ledger.storage if ledger.running_sums_stored and len(set(heads)) < len(heads) else own
    turned = np.swapaxes(call.scale_value * scores, -1, -2)
    sums = {
        "grad_value": (np.swapaxes(weight, -1, -2), grad, shared),
        "grad_key": (turned, call.query, shared),
        "grad_query": (np.swapaxes(turned, -1, -2), call.key[:, heads], own),
    }
    members = max((heads.count(h) for h in set(heads)), default=1)
    return ("output", *(name for name, (a, b, f) in sums.items() if _exact_sum(a, b, f, members)))


def _exact_sum(a: np.ndarray, b: np.ndarray, fmt: str, members: int = 1) -> bool:
    """Is every partial sum of A B, and of that many such sums added up, a number of the format, in any order?"""
    most = members * float((np.abs(a) @ np.abs(b)).max(initial=0.0))
    return most <= _grid(a) * _grid(b) * 2.0 ** get_format(fmt).precision


def _grid(a: np.ndarray) -> float:
    """The largest power of two of which every entry is a multiple; 1 when all are zero."""
    mantissa, exponent = np.frexp(a[a != 0])
    if mantissa.size == 0:
        return 1.0
    digits = (np.abs(mantissa) * 2.0**53).astype(np.int64)
    return float(np.ldexp((digits & -digits).astype(np.float64), exponent - 53).min())


@claim(
    "exactness-witness",
    "Where every intermediate is a value of the format, outputs and gradients match bit for bit.",
    basis="exact arithmetic: no rounding can occur, and exp(0) = 1",
    prepare=witness,
    needs=requires("masks"),
)
def exactness_witness(call: AttentionCall) -> Trials:
    if call.key.any() and call.query.any():
        return "the scores are not all zero"
    yield Trial(call, tensors=(), expect=(WithoutRounding(),))
