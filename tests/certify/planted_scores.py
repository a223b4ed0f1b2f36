"""Planted bugs in scores, normaliser and dropout: numpy-scores with one thing wrong, and the property that names it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from attnspec.certify.claims import Capabilities
from attnspec.certify.conventions.by_call import call_program
from attnspec.certify.conventions.program import Program
from attnspec.certify.observation import Observation
from attnspec.certify.subjects.families import NumpyScores
from attnspec.pyspec import AttentionCall, Ledger
from attnspec.pyspec.calls.formats import round_to
from attnspec.pyspec.study.normalisers import entmax_rows, sparsemax_rows
from tests.certify.wrong_scores import (
    Kernel,
    additive_as_product,
    dropout_first,
    dropped_as_illegal,
    dropped_without_score_gradient,
    fresh_mask,
    keeps_with_p,
    metric_ignored,
    metric_transposed,
    model_width_scale,
    not_replayed,
    not_rescaled,
    on_in_evaluation,
    own_not_rescaled,
    query_norm_only,
    radial_gradient,
    right,
    scaled,
    seed_ignored,
    slightly_off_rate,
    weights_after,
    weights_before,
    with_scores,
    without_norms,
    without_offset,
)


@dataclass(frozen=True)
class PlantedScore:
    """A wrong kernel: its name, the property that must refute it, and words the complaint must hold."""

    name: str
    refuted_by: str
    says: str
    kernel: Kernel


@dataclass(frozen=True)
class WrongScores:
    """A planted bug as a subject with the claims of numpy-scores."""

    bug: PlantedScore
    device: str = "cpu"

    @property
    def name(self) -> str:
        return f"planted:{self.bug.name}"

    @property
    def capabilities(self) -> Capabilities:
        return NumpyScores().capabilities

    def identity(self) -> dict[str, str]:
        return NumpyScores().identity()

    def ledger(self, dtype: str) -> Ledger:
        return NumpyScores().ledger(dtype)

    def run(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Observation:
        with np.errstate(all="ignore"):
            found = self.bug.kernel(call)
        tensors = {n: t if n == "lse" else round_to(call.dtype, t) for n, t in found.items()}
        kinds = dict.fromkeys(tensors, call.dtype)
        return Observation(tensors=tensors, dtypes=kinds, devices=dict.fromkeys(tensors, "cpu"), kernel="numpy")

    def program(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Program:
        return call_program(
            call, raw, f"_named({self.bug.name!r})", imports=("from tests.certify.planted_scores import _named",)
        )


PLANTED = (
    PlantedScore("scale twice", "scale-gate", "scale applied twice", scaled(lambda c: c.scale_value**2)),
    PlantedScore("d_model scale", "scale-gate", "scale derived from the width of the model", scaled(model_width_scale)),
    PlantedScore("inverse scale", "scale-gate", "scale used as a denominator", scaled(lambda c: 1 / c.scale_value)),
    PlantedScore("ignored scale", "scale-gate", "scale ignored", scaled(lambda c: 1.0)),
    PlantedScore(
        "default on top",
        "scale-gate",
        "default scale on top of the one given",
        scaled(lambda c: c.scale_value * (1.0 if c.scale is None else c.axes.key_width**-0.5)),
    ),
    PlantedScore(
        "given scale not read",
        "scale-gate",
        "default scale instead of the one given",
        scaled(lambda c: c.axes.key_width**-0.5),
    ),
    PlantedScore("cosine without norm", "cosine-agreement", "cosine without norms", with_scores(without_norms)),
    PlantedScore("cosine without norm, by length", "cosine-ignores-length", "", with_scores(without_norms)),
    PlantedScore("query norm only", "cosine-agreement", "only the query normalised", with_scores(query_norm_only)),
    PlantedScore("length held constant", "cosine-agreement", "", with_scores(radial_gradient)),
    PlantedScore(
        "additive as a GEMM",
        "additive-agreement",
        "additive score replaced by a product of matrices",
        with_scores(additive_as_product),
    ),
    PlantedScore("additive without offset", "additive-agreement", "offset left out", with_scores(without_offset)),
    PlantedScore("metric transposed", "bilinear-agreement", "metric transposed", with_scores(metric_transposed)),
    PlantedScore("metric ignored", "bilinear-agreement", "metric ignored", with_scores(metric_ignored)),
    PlantedScore(
        "sparsemax for softmax",
        "normaliser-is-softmax",
        "sparsemax instead of softmax",
        lambda call: right(call, normalise=sparsemax_rows),
    ),
    PlantedScore(
        "entmax for softmax",
        "normaliser-is-softmax",
        "1.5-entmax instead of softmax",
        lambda call: right(call, normalise=lambda visible, s: entmax_rows(visible, s, 1.5)),
    ),
    PlantedScore(
        "dropout before the normaliser", "dropout-after-normaliser", "dropout before the normaliser", dropout_first
    ),
    PlantedScore("dropout before the normaliser, by values", "dropout-value-shift", "", dropout_first),
    PlantedScore("dropout not rescaled", "dropout-after-normaliser", "kept weights not rescaled", not_rescaled),
    PlantedScore("dropped as illegal", "dropout-three-zeros", "dropped keys treated as illegal", dropped_as_illegal),
    PlantedScore(
        "dropped edges without score gradient",
        "dropout-three-zeros",
        "score gradient of dropped keys set to zero",
        dropped_without_score_gradient,
    ),
    PlantedScore("fresh mask in backward", "dropout-mask-replayed", "fresh mask in the backward pass", fresh_mask),
    PlantedScore("fresh own mask in backward", "dropout-own-mask", "fresh mask in the backward pass", fresh_mask),
    PlantedScore("keeps with the rate of dropping", "dropout-own-mask", "kept", keeps_with_p),
    PlantedScore("drops a fifth too often", "dropout-own-mask", "kept", slightly_off_rate),
    PlantedScore("own dropout not rescaled", "dropout-own-mask", "", own_not_rescaled),
    PlantedScore("seed ignored", "dropout-own-mask", "seeds drew the same mask", seed_ignored),
    PlantedScore("mask not replayed", "dropout-own-mask", "drew another mask when it was replayed", not_replayed),
    PlantedScore(
        "weights after dropout as P",
        "dropout-returned-weights",
        "weights after dropout returned as weights before dropout",
        weights_after,
    ),
    PlantedScore(
        "weights before dropout as consumed",
        "dropout-returned-weights",
        "weights before dropout returned as weights after dropout",
        weights_before,
    ),
    PlantedScore("dropout in evaluation", "dropout-multiplier", "", on_in_evaluation),
)

__all__ = ["PLANTED", "PlantedScore", "WrongScores"]


def _named(name: str) -> WrongScores:
    return WrongScores(next(bug for bug in PLANTED if bug.name == name))


# Subjects for the command line: `certify run tests/certify/planted_scores.py:cosine_without_norm`.
cosine_without_norm = _named("cosine without norm")
additive_as_a_gemm = _named("additive as a GEMM")
scale_twice = _named("scale twice")
fresh_mask_in_backward = _named("fresh mask in backward")
