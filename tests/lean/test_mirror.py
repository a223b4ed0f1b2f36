"""pyspec and spec/AttnSpec name each other: no Lean file without a mirror, no mirror without a Lean file."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tools.lean import gate
from tools.lean.digest import ROOT
from tools.lean.flatten import load

_REFERENCE = re.compile(r"\b(AttnSpec|AttnProofs)\.([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)")


def mirrors() -> dict[str, Path]:
    """Lean module to the pyspec file whose LEAN_MODULES names it."""
    found: dict[str, Path] = {}
    for path in sorted((ROOT / "pyspec").rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and any(getattr(t, "id", "") == "LEAN_MODULES" for t in node.targets):
                for name in ast.literal_eval(node.value):
                    assert name not in found, f"{path} and {found[name]} both mirror {name}"
                    found[name] = path
    return found


def test_every_lean_file_has_a_mirror_and_every_mirror_a_lean_file() -> None:
    lean = {name for name in load((ROOT / "spec",)) if name != "AttnSpec"}
    assert set(mirrors()) == lean


def test_every_lean_name_in_python_exists() -> None:
    """A docstring that names a definition or a theorem names one that is there."""
    modules = load((ROOT / "spec", ROOT / "proofs"))
    known = set(modules)
    for module in modules.values():
        known |= set(gate.declared(module))
    missing = []
    checked = 0
    for folder in ("pyspec", "strategies", "certify"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                for match in _REFERENCE.finditer(line):
                    checked += 1
                    if match[0] not in known and match[2] not in ("lean", "X", "X.name"):
                        missing.append(f"{path.relative_to(ROOT)}:{number}: {match[0]}")
    assert missing == []
    assert checked > 40
