"""The command refutes each planted visibility bug by the property that names it, and certifies the subject without."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.certify.command import command
from tests.certify.planted_visibility import PLANTED

pytestmark = [pytest.mark.slow, pytest.mark.mutants]


def run(name: str, prop_id: str, out: Path) -> subprocess.CompletedProcess[str]:
    options = ("--only", prop_id, "--dtype", "float32", "--examples", "20", "--no-isolate", "--quiet")
    return command("run", f"tests/certify/planted_visibility.py:{name}", *options, "--out", out)


@pytest.mark.parametrize(("name", "prop_id"), PLANTED.items())
def test_the_command_refutes_each_by_name(name: str, prop_id: str, tmp_path: Path) -> None:
    done = run(name, prop_id, tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"REFUTED  {prop_id}: " in done.stdout


@pytest.mark.parametrize("prop_id", sorted(set(PLANTED.values())))
def test_the_command_certifies_the_subject_without_a_bug(prop_id: str, tmp_path: Path) -> None:
    done = run("unplanted", prop_id, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
