"""What is checked out: the commit that a measurement speaks of."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@cache
def commit(*measured: str) -> str:
    """The commit checked out, marked when tracked files of these folders differ from it."""

    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False).stdout

    changed = git("status", "--porcelain", "--untracked-files=no", "--", *measured)
    return (git("rev-parse", "--short", "HEAD").strip() or "unknown") + ("-dirty" if changed else "")
