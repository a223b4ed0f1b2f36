"""How large things may be: files, functions, and the folder of properties."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
# A kernel that stands for another one takes that one's arguments, however many.
KERNELS = ("tests/conventions/kernels.py", "tests/mutants/kernel/", "tests/snippets/kernels/")
ROOMS = ("pyspec", "strategies", "certify", "tests", "bench", "tools")
FILES = sorted(file for room in ROOMS for file in (ROOT / room).rglob("*.py"))


def test_no_file_is_longer_than_330_lines() -> None:
    long = {str(f.relative_to(ROOT)): n for f in FILES if (n := len(f.read_text(encoding="utf-8").splitlines())) > 330}
    assert long == {}


def test_no_function_takes_more_than_eight_arguments() -> None:
    found = {}
    for file in FILES:
        if str(file.relative_to(ROOT)).startswith(KERNELS):
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                a = node.args
                names = [x.arg for x in (*a.posonlyargs, *a.args, *a.kwonlyargs) if x.arg not in ("self", "cls")]
                if len(names) > 8:
                    found[f"{file.relative_to(ROOT)}:{node.lineno}"] = names
    assert found == {}


def test_the_properties_fit_into_2500_lines() -> None:
    files = (ROOT / "certify" / "properties").glob("*.py")
    assert sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files) <= 2500
