"""Every example in the documents does what it says: Python lines run as doctests, console blocks as commands."""

from __future__ import annotations

import doctest
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from attnspec.certify.trials import property as registry

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
CONSOLE = re.compile(r"```console\n\$ (.*?)\n(.*?)```", re.DOTALL)
COMMANDS = [
    (document.name, command, shown)
    for document in DOCUMENTS
    for command, shown in CONSOLE.findall(document.read_text(encoding="utf-8"))
]
SECONDS = 900


def missing(shown: str, output: str) -> str | None:
    """The first shown line that is not in the output, in order. … stands for anything; alone, for any lines."""
    lines = iter(output.splitlines())
    for line in shown.strip().splitlines():
        pattern = re.compile(".*".join(re.escape(part) for part in line.split("…")) + r"\s*$")
        if line.strip() != "…" and not any(pattern.match(found) for found in lines):
            return line
    return None


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_python_examples(document: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What an example registers is gone with it.
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry.registered().items()))
    text = document.read_text(encoding="utf-8")
    examples = "\n".join(block for block in PYTHON.findall(text) if ">>>" in block)
    if not examples:
        pytest.skip("no examples in it")
    parsed = doctest.DocTestParser().get_doctest(examples, {}, document.name, str(document), 0)
    failures: list[str] = []
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    doctest.DocTestRunner(optionflags=flags).run(parsed, out=failures.append)
    assert not failures, "".join(failures)


@pytest.mark.parametrize(("command", "shown"), [c[1:] for c in COMMANDS], ids=[f"{c[0]}: {c[1]}" for c in COMMANDS])
def test_console_examples(command: str, shown: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    program, *arguments = shlex.split(command)
    assert program == "certify"
    done = subprocess.run(
        [sys.executable, "-m", "attnspec.certify", *arguments],
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    output = done.stdout + done.stderr
    line = missing(shown, output)
    assert line is None, f"not in the output: {line}\n{output}"
    stated = re.search(r"exit=(\d)$", shown.strip())
    assert done.returncode == (int(stated[1]) if stated else 4)


def test_the_readme_shows_commands() -> None:
    assert any(name == "README.md" for name, _, _ in COMMANDS)


def test_the_matcher_notices_a_missing_line() -> None:
    assert missing("…\nb\n", "a\nb\n") is None
    assert missing("b\na\n", "a\nb\n") == "a"
    assert missing("x … z", "x y z") is None
