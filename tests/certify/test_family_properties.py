"""Each planted bug of scores, normaliser and dropout is refuted by the property that names it; right subjects hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from attnspec.certify.campaign.parts import features_of
from attnspec.certify.subjects import load_subject
from attnspec.certify.subjects.families import NumpyScores, sampled_call
from attnspec.certify.trials import registered
from attnspec.strategies import PROFILES, call_at, small
from tests.certify.command import refuted
from tests.certify.drawn import cases
from tests.certify.planted_scores import PLANTED, PlantedScore, WrongScores

ROOT = Path(__file__).parents[2]
CASES = 60
HELD = 12
NAMES = (*dict.fromkeys(bug.refuted_by for bug in PLANTED), "bilinear-reduces-to-dot")


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.name)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_each_planted_bug_is_refuted_by_the_property_that_names_it(bug: PlantedScore, dtype: str) -> None:
    said = []
    for outcome in cases(WrongScores(bug), registered()[bug.refuted_by], dtype, CASES):
        if outcome.refuted:
            said.append(outcome.text or "")
            if bug.says in said[-1]:
                return
    assert said, f"{bug.name} survived {bug.refuted_by}"
    pytest.fail(f"{bug.name} was refuted but not named: {said[:3]}")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("subject", ["numpy-scores", "torch-scores"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_right_subjects_hold(name: str, subject: str, dtype: str) -> None:
    if subject.startswith("torch"):
        pytest.importorskip("torch")
    outcomes = list(cases(load_subject(subject), registered()[name], dtype, HELD))
    assert outcomes
    assert not [o.text or o.worst for o in outcomes if o.refuted]
    assert any(not o.vacuous for o in outcomes)


@pytest.mark.parametrize("name", NAMES)
def test_a_subject_of_dot_products_alone_is_held_to_what_it_claims(name: str) -> None:
    subject, prop = load_subject("numpy-reference"), registered()[name]
    reason = prop.needs(subject.capabilities)
    if name in ("bilinear-agreement", "dropout-own-mask", "dropout-returned-weights"):
        assert reason is not None
    if reason is None:
        assert not any(o.refuted for o in cases(subject, prop, "float32", HELD))
    else:
        assert reason.kind == "not_claimed"


def test_a_sampled_call_keeps_its_seed_and_the_same_seed_draws_the_same_mask() -> None:
    call = call_at(0, 3, small(PROFILES["smoke"]), features_of(NumpyScores().capabilities, "float64"))
    first, again, other = (NumpyScores().run(sampled_call(call, 0.5, s)).tensors["output"] for s in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("subject", "prop", "words"),
    [
        ("cosine_without_norm", "cosine-agreement", "got      cosine without norms\n"),
        ("additive_as_a_gemm", "additive-agreement", "additive score replaced by a product of matrices"),
        ("scale_twice", "scale-gate", "got      scale applied twice\n"),
        ("fresh_mask_in_backward", "dropout-mask-replayed", "fresh mask in the backward pass"),
    ],
)
def test_the_command_line_refutes_and_names_it(subject: str, prop: str, words: str, tmp_path: Path) -> None:
    printed = refuted(f"tests/certify/planted_scores.py:{subject}", prop, tmp_path)
    assert words in printed
    assert "0 differ" in printed
