"""The wheel in a folder of its own, beside a project that has strategies/, certify/ and pyspec/ folders itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OWN = '"""The project\'s own."""\n\nWHOSE = "the project\'s"\n'
SUITE = '''"""The project's own tests, and the conformance suite."""

import certify
import pyspec
import strategies

from attnspec.certify.conformance import test_property  # noqa: F401


def test_whose() -> None:
    assert {certify.WHOSE, pyspec.WHOSE, strategies.WHOSE} == {"the project's"}
'''


def run(*command: str, cwd: Path, site: Path | None = None) -> str:
    """The output of a command that must succeed; `site` stands before whatever else is installed."""
    clean = {n: v for n, v in os.environ.items() if not n.startswith("PYTEST_")}
    paths = {} if site is None else {"PYTHONPATH": str(site)}
    done = subprocess.run(
        command, cwd=cwd, env={**clean, **paths}, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nothing but what the wheel installs."""
    built, folder = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("site")
    # A copy: what an earlier build left in build/ would go into the wheel.
    source = built / "source"
    shutil.copytree(ROOT, source, symlinks=True, ignore=shutil.ignore_patterns(".*", "build", "cert", "*.egg-info"))
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(built), str(source), cwd=built)
    (wheel,) = built.glob("attnspec-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(folder)
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"attnspec"}
    files = (file for room in ("pyspec", "strategies", "certify") for file in (ROOT / room).rglob("*.py"))
    modules = {f"attnspec/{file.relative_to(ROOT)}" for file in files}
    assert modules <= set(names)
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose own folders have the names of our rooms."""
    for name in ("certify", "pyspec", "strategies"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(OWN, encoding="utf-8")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_own.py").write_text(SUITE, encoding="utf-8")
    return tmp_path


def test_command_and_pytest_run_beside_them(site: Path, project: Path) -> None:
    where = run(sys.executable, "-c", "import attnspec; print(attnspec.__file__)", cwd=project, site=site)
    assert where.strip().startswith(str(site))
    arguments = ("run", "numpy-reference", "--only", "unit-rows", "--dtype", "float32", "--profile", "smoke")
    assert "exit=0" in run(sys.executable, "-m", "attnspec", *arguments, cwd=project, site=site)
    arguments = ("-q", "-p", "no:cacheprovider", "-k", "whose or unit-rows", "--backend", "numpy-reference", "tests")
    assert "3 passed" in run(sys.executable, "-m", "pytest", *arguments, cwd=project, site=site)
