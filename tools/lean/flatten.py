"""Lays a Lean library out as one file, in import order, and maps positions back to the files it came from.

The fallback Lean cannot generate code across files, so it gets everything as one. Each file becomes a section of its
own with its header blanked, which keeps line counts: a position in the flat file is a file and a line in it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_IMPORT = re.compile(r"^\s*(?:public\s+)?(?:meta\s+)?import\s+(?:all\s+)?([\w.]+)\s*$")
_HEADER = re.compile(r"^\s*(?:module|@\[expose\]\s+public\s+section|public\s+section)\s*$")


class FlattenError(Exception):
    """The library does not hang together; the text names the file and line."""


@dataclass(frozen=True)
class Module:
    """One Lean file: its dotted name, its path, its text."""

    name: str
    path: Path
    text: str

    @property
    def imports(self) -> tuple[tuple[str, int], ...]:
        """Names imported, each with its line from 1."""
        found = ((_IMPORT.match(line), number) for number, line in enumerate(self.text.splitlines(), 1))
        return tuple((match[1], number) for match, number in found if match)


@dataclass(frozen=True)
class Flat:
    """The one file, and for each of its lines the path and line it came from (None for lines of our own)."""

    text: str
    origin: tuple[tuple[Path, int] | None, ...]

    def locate(self, line: int) -> tuple[Path, int] | None:
        """Where a line (from 1) of the flat file came from."""
        return self.origin[line - 1] if 1 <= line <= len(self.origin) else None


def load(folders: tuple[Path, ...]) -> dict[str, Module]:
    """Every Lean file under the source folders, by dotted name, in order of path."""
    modules: dict[str, Module] = {}
    for folder in folders:
        for path in sorted(folder.rglob("*.lean")):
            name = ".".join(path.relative_to(folder).with_suffix("").parts)
            if name in modules:
                raise FlattenError(f"{path}:1: module {name} is also {modules[name].path}")
            modules[name] = Module(name, path, path.read_text(encoding="utf-8"))
    return modules


def order(modules: dict[str, Module], roots: tuple[str, ...]) -> list[Module]:
    """What the roots reach, each module after everything it imports. Imports of Lean's own library are left alone."""
    own = {name.split(".")[0] for name in modules}
    done: list[Module] = []
    state: dict[str, bool] = {}

    def visit(name: str, where: str) -> None:
        if state.get(name):
            return
        if name in state:
            raise FlattenError(f"{where}: import cycle through {name}")
        if name not in modules:
            raise FlattenError(f"{where}: no such module: {name}")
        state[name] = False
        module = modules[name]
        for imported, line in module.imports:
            if imported.split(".")[0] in own:
                visit(imported, f"{module.path}:{line}")
        state[name] = True
        done.append(module)

    for root in roots:
        visit(root, root)
    return done


def flatten(modules: list[Module], extra: str = "") -> Flat:
    """The modules as one file, then `extra` as lines of our own."""
    lines: list[str] = ["module", "@[expose] public section", "set_option linter.missingDocs true"]
    origin: list[tuple[Path, int] | None] = [None, None, None]
    for number, module in enumerate(modules):
        lines.append(f"section FlatFile{number}")
        origin.append(None)
        for at, line in enumerate(module.text.splitlines(), 1):
            header = _IMPORT.match(line) or _HEADER.match(line)
            lines.append("" if header else line)
            origin.append((module.path, at))
        lines.append(f"end FlatFile{number}")
        origin.append(None)
    for line in extra.splitlines():
        lines.append(line)
        origin.append(None)
    return Flat("\n".join(lines) + "\n", tuple(origin))
