"""Digests of the Lean sources, so that a claim can name the text that it is about."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def folder_digest(folder: Path) -> str:
    """SHA-256 over the relative paths and contents of all *.lean files below a folder, in order of path."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.lean"), key=lambda p: p.relative_to(folder).as_posix()):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of one file's bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    for name in sys.argv[1:] or ("spec", "proofs"):
        print(f"{folder_digest(ROOT / name)}  {name}")
