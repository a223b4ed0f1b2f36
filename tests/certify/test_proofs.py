"""Phase "spec current": recorded where absent, refused where it contradicts itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from attnspec.certify.errors import UsageError
from attnspec.certify.evidence.proofs import checked_here, folder_digest, proof_state


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small source tree whose proofs were compiled."""
    for name in ("spec/AttnSpec.lean", "spec/AttnSpec/Sum.lean", "proofs/AttnProofs.lean"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"-- {name}\n")
    state = {
        "toolchain": "Lean 4.28.0",
        "audit": "axioms",
        "spec_digest": folder_digest(tmp_path / "spec"),
        "proofs_digest": folder_digest(tmp_path / "proofs"),
        "theorems": [{"name": "row_separation", "sentence": "Rows are separate."}],
    }
    (tmp_path / ".attnspec").mkdir()
    (tmp_path / ".attnspec/proofs.json").write_text(json.dumps(state))
    (tmp_path / "spec/vectors").mkdir()
    (tmp_path / "spec/vectors/manifest.json").write_text(json.dumps({"spec_digest": state["spec_digest"]}))
    (tmp_path / "deep/down").mkdir(parents=True)
    return tmp_path


def test_compiled_here(tree: Path) -> None:
    for start in (tree, tree / "deep/down"):
        found = proof_state(start)
        assert (found.compiled, found.toolchain, found.agrees) == ("here", "Lean 4.28.0", True)
        assert found.detail == "1 theorems compiled here under Lean 4.28.0 (axioms)"
        assert found.vectors == "made from this spec/"
        assert checked_here(found, "row_separation")
        assert checked_here(found, "AttnProofs.row_separation")
        assert not checked_here(found, "another")
        assert not checked_here(found, None)


def test_not_compiled_here_is_recorded(tree: Path) -> None:
    (tree / ".attnspec/proofs.json").unlink()
    found = proof_state(tree)
    assert (found.compiled, found.agrees) == ("not here", None)
    assert set(found.digests) == {"spec", "proofs"}
    assert not checked_here(found, "row_separation")


@pytest.mark.parametrize("name", ["spec/AttnSpec/Sum.lean", "proofs/AttnProofs.lean"])
def test_sources_changed_since(tree: Path, name: str) -> None:
    (tree / name).write_text("-- changed\n")
    with pytest.raises(UsageError, match=r"run `make (proofs|vectors)`"):
        proof_state(tree)


def test_vectors_from_another_spec(tree: Path) -> None:
    (tree / ".attnspec/proofs.json").unlink()
    (tree / "spec/AttnSpec/Sum.lean").write_text("-- changed\n")
    with pytest.raises(UsageError, match=r"vectors/ was made from another spec/ .*run `make vectors`"):
        proof_state(tree)


def test_a_state_that_cannot_be_read(tree: Path) -> None:
    (tree / ".attnspec/proofs.json").write_text("{")
    with pytest.raises(UsageError, match="cannot read the proof state"):
        proof_state(tree)


def test_the_digest_is_the_checkers(tree: Path) -> None:
    digest = pytest.importorskip("tools.lean.digest", reason="the Lean tools are not installed with the package")
    assert digest.folder_digest(tree / "spec") == folder_digest(tree / "spec")
