"""The core and the strategies need no torch: they import, and evaluate a call, where torch cannot be imported."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "jax", "triton", "onnxruntime"):
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Blocked())
from attnspec import pyspec, strategies
from attnspec.pyspec.domains import BallDomain
call = strategies.call_at(0, 3, strategies.PROFILES["smoke"], strategies.Features())
assert "output" in pyspec.evaluate(BallDomain(), call, with_lse=False)
assert not {"torch", "jax", "triton", "onnxruntime", "pytest"} & set(sys.modules)
print(sorted(pyspec.__all__)[0])
"""


def test_import_without_torch() -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "AttentionCall"


def test_pyspec_does_not_know_hypothesis() -> None:
    program = "import sys; from attnspec import pyspec; sys.exit('hypothesis' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=120).returncode == 0
