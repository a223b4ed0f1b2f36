"""Properties that an installed package brings stand beside our own, in the conformance suite as in the command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROPERTIES = """
import numpy as np

from attnspec.certify.claims import requires
from attnspec.certify.trials import Trial, claim
from attnspec.strategies.relations import take_keys


@claim("reversed-keys", "Keys in reverse order give the same output.", theorem="key_permutation_equivariance",
       needs=requires("masks"))
def reversed_keys(call):
    yield Trial(take_keys(call, np.arange(call.axes.keys)[::-1]), against=call, tensors=("output",))
"""
# Weights by the place of a key, not by the key.
KERNEL = """
import torch


def attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    key = torch.where(torch.arange(key.shape[-2])[:, None] > 0, key, 2 * key)
    return torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )
"""


def installed(folder: Path, text: str) -> None:
    """A distribution with one module of properties, as pip leaves it in a folder on the path."""
    (folder / "mine_properties.py").write_text(text, encoding="utf-8")
    info = folder / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text("[attnspec.properties]\nmine = mine_properties\n", encoding="utf-8")


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter with that folder on the path."""
    clean = {n: v for n, v in os.environ.items() if not n.startswith("PYTEST_")}
    command = [sys.executable, "-m", *arguments]
    environment = {**clean, "PYTHONPATH": str(folder)}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def test_a_property_of_another_package_is_asked(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    installed(tmp_path, PROPERTIES)
    (tmp_path / "kernel.py").write_text(KERNEL, encoding="utf-8")
    suite = "from attnspec.certify.conformance import test_property  # noqa: F401\n"
    (tmp_path / "test_suite.py").write_text(suite, encoding="utf-8")
    asked = ("pytest", "-q", "-p", "no:cacheprovider", "-k", "reversed-keys and float32", "test_suite.py", "--backend")
    right = run(tmp_path, *asked, "numpy-reference")
    assert (right.returncode, "1 passed" in right.stdout) == (0, True), right.stdout + right.stderr
    wrong = run(tmp_path, *asked, "kernel.py:attention")
    assert (wrong.returncode, "1 failed" in wrong.stdout) == (1, True), wrong.stdout + wrong.stderr


def test_properties_that_cannot_be_imported_are_named(tmp_path: Path) -> None:
    installed(tmp_path, "import no_such_module\n")
    done = run(tmp_path, "attnspec", "run", "numpy-reference", "--profile", "smoke")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "importing 'mine_properties' failed with ModuleNotFoundError" in done.stderr
    assert "Traceback" not in done.stderr
