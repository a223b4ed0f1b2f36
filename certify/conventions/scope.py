"""Statements that bring somebody's own subject into scope, from whatever folder the program is started in."""

from __future__ import annotations

import ast
import builtins
from keyword import iskeyword
from pathlib import Path

from attnspec.pyspec.calls.features import BY_NAME, MODIFIERS

# Names that a program uses for itself.
TAKEN = frozenset(
    ("query", "key", "value", "bias", "visible", "attn_mask", "grad_output", "room", "result", "output", "lse", "scale",
     "score_shape", "dropout_p", "seed", "torch", "math", "runpy", "sys", "zlib", "ml_dtypes", "run", "run_before",
     "seen", "before", "got", "memory", "tensors", "parts", "row", "unit", "bits", "seeds", "masks", "kept"),
).union(MODIFIERS, (BY_NAME[name].keyword for name in MODIFIERS), dir(builtins))  # fmt: skip


def called(spec: str) -> str:
    """The name under which a program calls the function `path.py:name` or `module:name`."""
    name = spec.rpartition(":")[2]
    return name if name.isidentifier() and not iskeyword(name) and name not in TAKEN else "kernel"


def import_statements(spec: str) -> tuple[str, ...]:
    """Statements that bring the function `path.py:name` or `module:name` into scope."""
    place, _, attribute = spec.rpartition(":")
    name = called(spec)
    if place.endswith(".py"):
        loads: tuple[str, ...] = (
            "import runpy",
            f"{name} = runpy.run_path({str(Path(place).resolve())!r})[{attribute!r}]",
        )
    else:
        loads = (f"from {place} import {attribute}" + ("" if name == attribute else f" as {name}"),)
    return (*path_statements(spec), *loads)


def path_statements(spec: str) -> tuple[str, ...]:
    """Statements that put the working folder on the path, as the command does, where what is loaded needs it."""
    place = spec.rpartition(":")[0]
    here = Path.cwd()
    names = _imported(Path(place)) if place.endswith(".py") else {place.partition(".")[0]}
    if any((here / name).is_dir() or (here / f"{name}.py").is_file() for name in names):
        return ("import sys", f"sys.path.append({str(here)!r})")
    return ()


def absolute(spec: str) -> str:
    """The subject's name or path, in full where it is a path."""
    place, colon, attribute = spec.rpartition(":")
    return f"{Path(place).resolve()}:{attribute}" if colon and place.endswith(".py") else spec


def _imported(file: Path) -> set[str]:
    """Top-level names of the modules that a file imports."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return set()
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found
