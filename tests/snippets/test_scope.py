"""A snippet finds the kernel from any folder: in a module of the working folder, or in a file that imports from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnspec.certify.conventions.scope import absolute, called, import_statements
from attnspec.certify.evidence.counterexample import read_counterexample
from tests.snippets.runs import certify, printed_number, python

pytest.importorskip("torch")

HELPER = """import torch


def twice(query, key, value):
    return 2.0 * torch.softmax(query @ key.mT * query.shape[-1] ** -0.5, -1) @ value
"""


@pytest.mark.parametrize("spec", ["kernels_of_mine.flash:run", "kernels_of_mine/flash.py:run"])
def test_what_the_working_folder_holds_is_found_from_another(spec: str, tmp_path: Path) -> None:
    package = tmp_path / "kernels_of_mine"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "parts.py").write_text(HELPER, encoding="utf-8")
    # The name is one that the program uses for itself.
    (package / "flash.py").write_text("from kernels_of_mine.parts import twice as run\n", encoding="utf-8")
    options = ("--only", "unit-rows", "--dtype", "float32", "--profile", "smoke", "--no-isolate")
    done = certify(tmp_path, "run", spec, *options)
    assert done.exit_code == 1, done.output
    (file,) = tmp_path.glob("cert/*/counterexamples/*.json")
    ran = python(tmp_path / "elsewhere", file.with_suffix(".py"))
    assert printed_number(ran.stdout)[1].hex() == read_counterexample(file).observed[0].observed.hex
    assert ran.stderr.endswith("AssertionError\n")


def test_a_name_that_a_program_uses_is_not_taken_twice() -> None:
    for name in ("run", "seen", "before", "bits", "float", "torch", "lambda", "alibi_slopes"):
        assert called(f"kernels:{name}") == "kernel"
    assert called("kernels:attention") == "attention"
    assert import_statements("installed.kernels:run") == ("from installed.kernels import run as kernel",)


def test_a_path_is_written_in_full_and_a_name_as_it_is() -> None:
    assert absolute("mine.py:kernel") == f"{Path.cwd() / 'mine.py'}:kernel"
    assert [absolute(spec) for spec in ("numpy-reference", "torch-sdpa:math")] == ["numpy-reference", "torch-sdpa:math"]
