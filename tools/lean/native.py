"""Checks the library with a native Lean through `lake`, and audits the axioms of every claim."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

ALLOWED_AXIOMS = frozenset({"propext", "Classical.choice", "Quot.sound"})
_AXIOMS = re.compile(r"'(?P<name>[^']+)' (?:depends on axioms: \[(?P<axioms>[^\]]*)\]|does not depend on any axioms)")


@dataclass(frozen=True)
class Outcome:
    """Status and output of a command, and whether it ran out of time."""

    status: int
    output: str
    timed_out: bool = False


def call(command: list[str], cwd: Path, timeout: float) -> Outcome:
    """Runs a command in a process group of its own, which dies when the time is up."""
    process = subprocess.Popen(
        command,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        raw, _ = process.communicate(timeout=timeout)
        return Outcome(process.returncode, raw.decode(errors="replace"))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raw, _ = process.communicate()
        return Outcome(124, raw.decode(errors="replace"), timed_out=True)


def run_text(lake: str, root: Path, text: str, timeout: float) -> Outcome:
    """Elaborates a text that may import the built library."""
    with tempfile.TemporaryDirectory(prefix="attnspec-") as folder:
        file = Path(folder) / "Audit.lean"
        file.write_text(text, encoding="utf-8")
        return call([lake, "env", "lean", str(file)], root, timeout)


def version(lake: str, root: Path) -> str:
    """What Lean says of itself."""
    return call([lake, "env", "lean", "--version"], root, 600).output.strip()


def audit_axioms(lake: str, root: Path, names: list[str], timeout: float) -> list[str]:
    """What is wrong with the axioms of these theorems; nothing when each rests on the allowed ones only."""
    text = "import AttnProofs\n" + "".join(f"#print axioms {name}\n" for name in names)
    outcome = run_text(lake, root, text, timeout)
    return read_axioms(outcome.output, names)


def read_axioms(output: str, names: list[str]) -> list[str]:
    """Compares the output of `#print axioms` with what is allowed; a theorem it does not speak of is wrong too."""
    used: dict[str, set[str]] = {}
    for match in _AXIOMS.finditer(" ".join(output.split())):
        used[match["name"]] = {axiom.strip() for axiom in (match["axioms"] or "").split(",") if axiom.strip()}
    wrong = []
    for name in names:
        if name not in used:
            wrong.append(f"{name}: Lean did not report its axioms")
        elif extra := used[name] - ALLOWED_AXIOMS:
            wrong.append(f"{name} rests on {', '.join(sorted(extra))}")
    return wrong
