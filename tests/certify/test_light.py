"""The command starts fast, and importing it loads neither a framework nor the generators."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from attnspec.certify.cli import main
from attnspec.certify.evidence.numbers import hex_word, ratio_in, ratio_out, ratio_text, ulps

ROOT = Path(__file__).parents[2]


def test_importing_the_command_loads_nothing_heavy() -> None:
    code = (
        "import sys, attnspec.certify.cli; "
        "print(sorted({'torch', 'hypothesis', 'strategies', 'rich', 'jinja2', 'numpy', 'flint'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_help_names_the_exit_codes() -> None:
    for arguments in (["--help"], ["run", "--help"]):
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 0
        assert "3 self-check failed" in " ".join(result.output.split())


def test_version_needs_no_installation() -> None:
    result = CliRunner().invoke(main, ["--version"])
    assert result.exit_code == 0, result.output
    assert result.output.startswith("certify ")


def test_list_names_subjects_and_properties() -> None:
    result = CliRunner().invoke(main, ["list"])
    assert result.exit_code == 0, result.output
    assert "numpy-reference" in result.output.splitlines()
    assert any(line.startswith("forward-agreement ") for line in result.output.splitlines())


def test_an_option_that_does_not_exist_is_a_usage_error() -> None:
    assert CliRunner().invoke(main, ["run", "fake", "--fast"]).exit_code == 2
    assert CliRunner().invoke(main, ["run"]).exit_code == 2


@pytest.mark.parametrize(
    ("dtype", "distance", "at", "expected"),
    [
        ("bfloat16", 2.0**-7, 1.0, 1.0),
        ("bfloat16", 2.0**-7, 1.99, 1.0),
        ("float32", 2.0**-23, 1.0, 1.0),
        ("float32", 3 * 2.0**-22, 2.5, 3.0),
        ("float64", 2.0**-52, -1.0, 1.0),
        ("float16", 2.0**-24, 0.0, 1.0),
        ("float32", float("inf"), 1.0, None),
    ],
)
def test_units_in_the_last_place(dtype: str, distance: float, at: float, expected: float | None) -> None:
    assert ulps(dtype, distance, abs(at)) == expected


def test_ratios_in_files_and_back() -> None:
    for value in (0.0, 0.5, 1e300, float("inf")):
        assert ratio_in(ratio_out(value)) == value
    assert ratio_out(float("nan")) == "infinite"
    assert ratio_out(None) is None
    assert [ratio_text(x) for x in (None, "infinite", 0.5, 12345.0)] == ["–", "∞", "0.500", "1.23e+04"]
    assert [ratio_text(x) for x in (0.99999, 1.0, 1.00001)] == ["0.999", "1.000", "1.001"]


def test_words_are_bit_patterns() -> None:
    assert hex_word("bfloat16", 1.0) == "0x3f80"
    assert hex_word("float32", -0.0) == "0x80000000"
