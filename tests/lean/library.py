"""Copies of the Lean library to damage, and a small library of two files that checks fast."""

from __future__ import annotations

import shutil
from pathlib import Path

from tools.lean.digest import ROOT


def copy_library(to: Path) -> Path:
    """spec/ and proofs/ of this tree under a folder of their own; gives that folder."""
    for name in ("spec", "proofs"):
        shutil.copytree(ROOT / name, to / name)
    return to


def small_library(to: Path, proof: str = "theorem two_is_two : two = 2 := rfl") -> Path:
    """A library with one definition and one claim."""
    (to / "spec").mkdir()
    (to / "proofs").mkdir()
    (to / "spec" / "AttnSpec.lean").write_text(
        "module\n\n@[expose] public section\n\n/-- Two. -/\ndef two : Nat := 2\n", encoding="utf-8"
    )
    (to / "proofs" / "AttnProofs.lean").write_text(
        f"module\npublic import AttnSpec\n\n@[expose] public section\n\n/-- Two is two. -/\n{proof}\n", encoding="utf-8"
    )
    return to


def insert(path: Path, before: str, text: str) -> int:
    """Puts text before the first line that starts so; gives the number of the text's first line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith(before))
    lines[at:at] = text.splitlines()
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return at + 1
