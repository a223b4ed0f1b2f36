"""The command as a user runs it: in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """`certify ARGUMENTS` in the project's folder, with plain and wide output."""
    return subprocess.run(
        [sys.executable, "-m", "attnspec.certify", *map(str, arguments)],
        cwd=ROOT, env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1"},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def refuted(subject: str | Path, prop_id: str, out: Path) -> str:
    """What `certify run` prints of a subject that it refutes by one property in float32."""
    done = command("run", subject, "--only", prop_id, "--dtype", "float32", "--profile", "smoke", "--out", out)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"REFUTED  {prop_id}" in done.stdout
    return done.stdout
