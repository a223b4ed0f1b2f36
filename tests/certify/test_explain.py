"""`certify explain` names the tensor, the row and the first stage at which a subject leaves what is allowed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from attnspec.certify.campaign.explain import Asked, Explanation, asked, explain, shown_stages
from attnspec.certify.campaign.parts import default_parts
from attnspec.certify.errors import UsageError
from attnspec.certify.evidence.report.explained import explanation
from attnspec.certify.subjects.numpy_reference import NumpyReference
from attnspec.certify.trials import Trial
from attnspec.pyspec import AttentionCall, call_to_json, make_call
from attnspec.pyspec.calls.call import Dropout
from attnspec.pyspec.oracle.stages import first_leaving
from attnspec.strategies import PROFILES, Features, call_at, small
from tests.certify.command import command
from tests.certify.planted_stages import WRONG_FROM, Staged

ROOT = Path(__file__).parents[2]
HERE = "tests/certify/planted_stages.py"


def call_with_everything(seed: int = 0) -> AttentionCall:
    """Grouped heads, bias, hidden keys, softcap, sink and dropout, small numbers."""
    rng = np.random.default_rng(seed)
    visible = rng.random((1, 2, 3, 4)) < 0.7
    visible[..., 0] = True
    return make_call(
        rng.integers(-4, 5, (1, 2, 3, 2)) / 2,
        rng.integers(-4, 5, (1, 1, 4, 2)) / 2,
        rng.integers(-4, 5, (1, 1, 4, 2)) / 2,
        visible=visible,
        bias=rng.integers(1, 5, (1, 2, 3, 4)) / 2,
        encoding="additive",
        grad_output=rng.integers(1, 5, (1, 2, 3, 2)) / 2,
        dropout=Dropout(0.5, 2.0 * (rng.random((1, 2, 3, 4)) < 0.7)),
        softcap=2.0,
        sink=np.array([0.5, -1.0]),
    )


def explained(subject: Staged, call: AttentionCall) -> Explanation:
    one = Asked(Trial(call), subject.name, "cpu", False, None, "a call")
    parts = default_parts()
    from dataclasses import replace

    return explain(one, replace(parts, load=lambda spec, device: subject, foreign=lambda spec: False))


@pytest.mark.parametrize("bug", WRONG_FROM)
def test_the_first_deviating_stage_is_named(bug: str) -> None:
    found = explained(Staged(bug), call_with_everything())
    assert found.refuted
    assert found.leaving is not None
    assert found.leaving.stage == WRONG_FROM[bug][0]
    text = explanation(found)
    assert f"stages   first outside: {WRONG_FROM[bug][0]} [batch 0, head " in text
    assert "tensor   output OUTSIDE" in text
    assert "row      batch 0, head " in text


def test_a_right_subject_is_inside_everywhere() -> None:
    found = explained(Staged(), call_with_everything())
    assert not found.refuted
    text = explanation(found)
    assert "OUTSIDE" not in text
    assert "stages   every stage shown is inside" in text


def test_a_subject_without_stages_is_explained_by_tensors() -> None:
    found = explained(Staged("scale_twice", silent=True), call_with_everything())
    assert found.leaving is None
    assert found.refuted
    assert "stages   the subject shows none" in explanation(found)


def test_contributions_of_a_row_add_up_to_the_exact_output() -> None:
    call = call_with_everything().but(sink=None)
    text = explanation(explained(Staged("values_negated"), call))
    line = next(line for line in text.splitlines() if line.strip().startswith("sum"))
    judged = next(j for j in explained(Staged("values_negated"), call).outcome.judgements if j.tensor == "output")
    assert float(line.split()[-1]) == pytest.approx(judged.exact[0], rel=1e-6)


@pytest.mark.parametrize("tensor", ["grad_query", "grad_key", "grad_value", "grad_bias", "grad_sink", "lse"])
def test_rows_and_columns_of_every_tensor_are_told(tensor: str) -> None:
    from attnspec.certify.evidence.report.explained import row_lines

    call = call_with_everything()
    found = explained(Staged(), call)
    judged = next(j for j in found.outcome.judgements if j.tensor == tensor)
    lines = list(row_lines(call, judged))
    assert lines[0].startswith(("row", "column"))
    if tensor != "grad_sink":
        total = float(lines[-1].split()[-1])
        if tensor in ("grad_query", "grad_key", "grad_value"):
            assert total == pytest.approx(judged.exact[0], rel=1e-6, abs=1e-8)


def test_stages_of_the_reference_are_inside_on_generated_calls() -> None:
    subject = NumpyReference()
    for index in range(40):
        call = call_at(4, index, small(PROFILES["smoke"]), Features(dtypes=("float32",), softcap=True, sink=True))
        stages = shown_stages(subject, call)
        assert stages is not None
        assert first_leaving(call, subject.ledger("float32"), stages) is None, index


def test_an_unclaimed_call_is_skipped(tmp_path: Path) -> None:
    file = tmp_path / "call.json"
    file.write_text(call_to_json(call_with_everything()), encoding="utf-8")
    with pytest.raises(UsageError, match="a call names no subject: add --subject"):
        asked(str(file), None, None, ())
    pytest.importorskip("torch")
    found = explain(asked(str(file), "torch-sdpa:math", None, ()), default_parts())
    assert found.outcome.skip is not None
    assert "nothing could be tested" in explanation(found)


def test_what_is_no_call_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[", encoding="utf-8")
    (tmp_path / "b.json").write_text('{"format": "attnspec.call/1"}', encoding="utf-8")
    with pytest.raises(UsageError, match="cannot read it as JSON"):
        asked(str(tmp_path / "a.json"), None, None, ())
    with pytest.raises(UsageError, match="written by an older version: run the certify command again"):
        asked(str(tmp_path / "b.json"), "numpy-reference", None, ())


def test_the_command_explains_a_call_and_a_stored_counterexample(tmp_path: Path) -> None:
    file = tmp_path / "call.json"
    file.write_text(call_to_json(call_with_everything()), encoding="utf-8")
    inside = command("explain", str(file), "--subject", "numpy-reference")
    assert inside.returncode == 0, inside.stdout + inside.stderr
    wrong = command("explain", str(file), "--subject", f"{HERE}:scale_twice")
    assert wrong.returncode == 1, wrong.stdout + wrong.stderr
    assert "stages   first outside: scaled [batch 0, head " in wrong.stdout
    ran = command("run", f"{HERE}:scale_twice", "--only", "forward-agreement", "--dtype", "float32",
                  "--profile", "smoke", "--out", str(tmp_path / "cert"))  # fmt: skip
    assert ran.returncode == 1, ran.stdout + ran.stderr
    (stored,) = (tmp_path / "cert/counterexamples").glob("*.json")
    again = command("explain", stored.stem, "--out", str(tmp_path / "cert"))
    assert again.returncode == 1, again.stdout + again.stderr
    assert f"explain  {stored.stem} to forward-agreement" in again.stdout
    assert "first outside: scaled" in again.stdout
    mended = command("explain", str(stored), "--subject", "numpy-reference")
    assert mended.returncode == 0, mended.stdout + mended.stderr
