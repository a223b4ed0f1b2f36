"""The source gate: what it must find, with file and line, and what it must let pass."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.lean.library import copy_library, insert
from tools.lean import gate
from tools.lean.digest import ROOT, folder_digest

SOFTMAX = Path("proofs") / "AttnProofs" / "Softmax.lean"


def run_check(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "tools" / "lean" / "check.py"), "--root", str(root)],
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_this_tree_passes() -> None:
    assert gate.audit(ROOT) == []


@pytest.mark.parametrize(
    "planted",
    [
        "/-- Open. -/\ntheorem planted : 1 = 2 := by sorry",
        "/-- Assumed. -/\naxiom planted : 1 = 2",
        "/-- Trusts the compiler. -/\ntheorem planted : 1 = 1 := by native_decide",
        "/-- Trusts the compiler. -/\ntheorem planted : 1 = 1 := by decide +native",
        "/-- Unsafe. -/\nunsafe def planted : Nat := 1",
        '/-- Foreign. -/\n@[extern "planted"] def planted : Nat := 1',
        "/-- Another at run time. -/\n@[implemented_by other] def planted : Nat := 1",
        "/-- Opaque. -/\nopaque planted : 1 = 1",
        "/-- Runs. -/\nrun_cmd planted",
        "/-- Skips the kernel. -/\nset_option debug.skipKernelTC true",
    ],
)
def test_a_way_around_the_kernel_is_found(tmp_path: Path, planted: str) -> None:
    root = copy_library(tmp_path)
    line = insert(root / SOFTMAX, "section Center", planted)
    found = run_check(root)
    assert found.returncode == 1
    assert f"{SOFTMAX}:{line + 1}: " in found.stderr
    assert "NOT checked" in found.stderr
    assert not (root / ".attnspec" / "proofs.json").exists()


def test_words_in_comments_and_strings_are_let_pass(tmp_path: Path) -> None:
    root = copy_library(tmp_path)
    insert(
        root / SOFTMAX,
        "section Center",
        '-- sorry\n/- an axiom /- nested: unsafe -/ still sorry -/\n/-- A word. -/\ndef word : String := "sorry"',
    )
    assert gate.audit(root) == []


def test_an_unimported_file_is_found(tmp_path: Path) -> None:
    root = copy_library(tmp_path)
    lost = root / "proofs" / "AttnProofs" / "Lost.lean"
    lost.write_text("module\n", encoding="utf-8")
    found = run_check(root)
    assert found.returncode == 1
    assert "proofs/AttnProofs/Lost.lean:1: no root imports AttnProofs.Lost" in found.stderr


def test_a_missing_import_is_found(tmp_path: Path) -> None:
    root = copy_library(tmp_path)
    line = insert(root / SOFTMAX, "@[expose]", "public import AttnProofs.Nowhere")
    (finding,) = gate.audit(root)
    assert (finding.path, finding.line) == (root / SOFTMAX, line)
    assert "no such module: AttnProofs.Nowhere" in finding.reason


def test_a_cycle_is_found(tmp_path: Path) -> None:
    root = copy_library(tmp_path)
    insert(root / "proofs" / "AttnProofs" / "Sum.lean", "@[expose]", "public import AttnProofs.Softmax")
    assert any("import cycle" in finding.reason for finding in gate.audit(root))


def test_a_foreign_import_is_found(tmp_path: Path) -> None:
    root = copy_library(tmp_path)
    line = insert(root / SOFTMAX, "@[expose]", "import Lean")
    (finding,) = gate.audit(root)
    assert (finding.line, finding.reason) == (line, "imports Lean, which is not of this library")


def test_a_theorem_in_the_specification_is_found(tmp_path: Path) -> None:
    root = copy_library(tmp_path)
    line = insert(
        root / "spec" / "AttnSpec" / "Sum.lean", "end AttnSpec", "/-- Misplaced. -/\ntheorem planted : 1 = 1 := rfl"
    )
    (finding,) = gate.audit(root)
    assert finding.line == line + 1
    assert "belongs to proofs/" in finding.reason


@pytest.mark.parametrize(
    ("planted", "offset"),
    [
        ("def bare : Nat := 1", 0),
        ("/- not a docstring -/\ntheorem bare : 1 = 1 := rfl", 1),
        ("@[simp] theorem bare : 1 = 1 := rfl", 0),
        ("/-- A pair. -/\nstructure Pair where\n  /-- One. -/\n  one : Nat\n  bare : Nat", 4),
        ("/-- Two ways. -/\ninductive Way where\n  /-- One. -/\n  | one\n  | bare", 4),
    ],
)
def test_a_missing_docstring_is_found(tmp_path: Path, planted: str, offset: int) -> None:
    root = copy_library(tmp_path)
    line = insert(root / SOFTMAX, "section Center", planted)
    (finding,) = gate.audit(root)
    assert (finding.path, finding.line) == (root / SOFTMAX, line + offset)
    assert "bare has no docstring" in finding.reason


def test_claims_have_sentences_and_names_like_claims(tmp_path: Path) -> None:
    claims = gate.headlines(ROOT)
    assert len(claims) >= 30
    for claim in claims:
        assert claim.sentence[0].isupper()
        assert claim.sentence.endswith(".")
    root = copy_library(tmp_path)
    insert(root / "proofs" / "AttnProofs.lean", "end AttnProofs", "/-- Bad. -/\ntheorem BadName : 1 = 1 := rfl")
    (finding,) = gate.audit(root)
    assert "snake case" in finding.reason


def test_the_five_of_the_seed_are_claims() -> None:
    names = {claim.name for claim in gate.headlines(ROOT)}
    assert {
        "row_separation",
        "backward_helper_row_separation",
        "backward_helper_symmetric",
        "empty_row_gradient_zero",
        "jvp_backward_pairing",
    } <= names


def test_the_digest_sees_content_and_names(tmp_path: Path) -> None:
    root = copy_library(tmp_path)
    before = folder_digest(root / "spec")
    assert before == folder_digest(ROOT / "spec")
    (root / "spec" / "vectors" / "more.json").write_text("{}", encoding="utf-8")
    assert folder_digest(root / "spec") == before
    path = root / "spec" / "AttnSpec" / "Sum.lean"
    path.write_text(path.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    changed = folder_digest(root / "spec")
    assert changed != before
    path.rename(path.with_name("Total.lean"))
    assert folder_digest(root / "spec") != changed
