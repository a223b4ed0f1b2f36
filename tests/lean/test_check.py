"""The checker: reading Lean's messages, and, where a Lean is to be had, that it rejects what it must."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lean.library import copy_library, insert, small_library
from tools.lean import check, native, vectors
from tools.lean.digest import ROOT, folder_digest
from tools.lean.flatten import flatten, load, order
from tools.lean.lean_run import parse

TRUE_CANARY = "theorem canary : two = 2 := rfl\n"
FALSE_CANARY = "theorem canary : two = 3 := by decide\n"


def test_positions_lead_back_to_files() -> None:
    modules = order(load((ROOT / "spec", ROOT / "proofs")), ("AttnSpec", "AttnProofs"))
    flat = flatten(modules, "-- ours\n")
    lines = flat.text.splitlines()
    seen: set[Path] = set()
    for number, line in enumerate(lines, 1):
        origin = flat.locate(number)
        if origin and line.strip():
            path, at = origin
            assert path.read_text(encoding="utf-8").splitlines()[at - 1] == line
            seen.add(path)
    assert seen == {m.path for m in modules if any(line.startswith("/-!") for line in m.text.splitlines())}
    assert flat.locate(len(lines)) is None


def test_imports_come_first() -> None:
    names = [m.name for m in order(load((ROOT / "spec", ROOT / "proofs")), ("AttnProofs",))]
    assert names.index("AttnSpec.Sum") < names.index("AttnSpec.Matrix") < names.index("AttnProofs.Matrix")
    assert names[-1] == "AttnProofs"
    assert len(names) == len(set(names))


def test_messages_are_read() -> None:
    messages, rest = parse(
        "hello\n/tmp/a.lean:3:27: error: Type mismatch\n  rfl\n/tmp/a.lean:9:0: warning: declaration uses `sorry`\n"
        "/tmp/a.lean:12:4: error(lean.unknownIdentifier): Unknown identifier `x`"
    )
    assert rest == "hello"
    assert [(m.severity, m.line, m.column) for m in messages] == [("error", 3, 27), ("warning", 9, 0), ("error", 12, 4)]
    assert messages[0].text == "Type mismatch\n  rfl"
    assert messages[2].text == "Unknown identifier `x`"


def test_axioms_are_read() -> None:
    output = (
        "'AttnProofs.a' does not depend on any axioms\n"
        "'AttnProofs.b' depends on axioms: [propext,\n Classical.choice, Quot.sound]\n"
        "'AttnProofs.c' depends on axioms: [propext, sorryAx]\n"
    )
    names = ["AttnProofs.a", "AttnProofs.b", "AttnProofs.c", "AttnProofs.d"]
    assert native.read_axioms(output, names) == [
        "AttnProofs.c rests on sorryAx",
        "AttnProofs.d: Lean did not report its axioms",
    ]


def test_cut_off_vectors_are_refused() -> None:
    assert vectors.split('noise\n@file a\n{"x":"1"}\n@end\n') == {"a.json": '[\n{"x":"1"}\n]\n'}
    with pytest.raises(vectors.VectorError, match="cut off"):
        vectors.split('@file a\n{"x":"1"}\n')


def test_stale_vectors_are_refused(tmp_path: Path) -> None:
    root = copy_library(tmp_path)
    program = root / vectors.PROGRAM
    program.parent.mkdir(parents=True)
    program.write_bytes((ROOT / vectors.PROGRAM).read_bytes())
    assert vectors.stale(root) == []
    path = root / "spec" / "AttnSpec" / "Attention.lean"
    path.write_text(path.read_text(encoding="utf-8").replace("consumed p x) G", "weights p x) G"), encoding="utf-8")
    (wrong,) = vectors.stale(root)
    assert "spec_digest" in wrong
    assert vectors.main(["--check", "--no-lean", "--root", str(root)]) == 1


@pytest.mark.lean
def test_a_false_lemma_is_rejected_with_file_and_line(tmp_path: Path) -> None:
    root = copy_library(tmp_path)
    line = insert(
        root / "proofs" / "AttnProofs" / "Matrix.lean",
        "end AttnSpec",
        "/-- False. -/\ntheorem planted (u : Vec R n) : dot u u = 0 := sum_eq_zero fun _ => by grind\n",
    )
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "lean" / "check.py"), "--root", str(root), "--timeout", "280"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1, done.stdout
    assert f"proofs/AttnProofs/Matrix.lean:{line + 1}:" in done.stderr
    assert not (root / check.STATE).exists()


@pytest.mark.lean
def test_a_small_library_is_checked_and_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNSPEC_LEAN", "wasm")
    monkeypatch.setattr(check, "CANARY", FALSE_CANARY)
    root = small_library(tmp_path)
    assert check.main(["--root", str(root), "--timeout", "150"]) == 0
    state = json.loads((root / check.STATE).read_text(encoding="utf-8"))
    assert state["status"] == "checked"
    assert state["theorems"] == [{"name": "two_is_two", "sentence": "Two is two."}]
    assert state["spec_digest"] == folder_digest(root / "spec")
    assert state["audit"].startswith("source gate")


@pytest.mark.lean
def test_a_checker_that_accepts_the_canary_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ATTNSPEC_LEAN", "wasm")
    monkeypatch.setattr(check, "CANARY", TRUE_CANARY)
    assert check.main(["--root", str(small_library(tmp_path)), "--timeout", "150"]) == 1
    assert "drew 0 errors" in capsys.readouterr().err


@pytest.mark.lean
def test_a_warning_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ATTNSPEC_LEAN", "wasm")
    monkeypatch.setattr(check, "CANARY", FALSE_CANARY)
    root = small_library(tmp_path, "theorem two_is_two (unused : Nat) : two = 2 := rfl")
    assert check.main(["--root", str(root), "--timeout", "150"]) == 1
    error = capsys.readouterr().err
    assert "proofs/AttnProofs.lean:7:" in error
    assert "warning" in error


@pytest.mark.lean
def test_a_run_out_of_time_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ATTNSPEC_LEAN", "wasm")
    assert check.main(["--root", str(copy_library(tmp_path)), "--timeout", "1"]) == 1
    assert "did not finish within 1 s" in capsys.readouterr().err
