"""Where a run took place, as text: enough to tell why two certificates differ."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from pathlib import Path

PREFIX = "ATTNSPEC_"


def version() -> str:
    """Version of this distribution, or "source tree" where it is not installed."""
    try:
        return importlib.metadata.version("attnspec")
    except importlib.metadata.PackageNotFoundError:
        return "source tree"


def environment() -> dict[str, str]:
    """Interpreter, libraries that matter for numbers, machine, and the variables that steer this package.

    Optional libraries are named only when something has loaded them.
    """
    found = {
        "attnspec": version(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpu": _cpu(),
        "cpus": str(_cpus()),
    }
    for name in ("numpy", "python-flint", "mpmath", "ml-dtypes"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    for name in ("torch", "jax", "onnxruntime"):
        module = sys.modules.get(name)
        if module is not None:
            found[name] = str(getattr(module, "__version__", "unknown"))
    for name in sorted(os.environ):
        if name.startswith(PREFIX) or name in ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"):
            found[name] = os.environ[name]
    return found


def debugging() -> bool:
    """Did the user ask for tracebacks?"""
    return os.environ.get(f"{PREFIX}DEBUG", "") not in ("", "0")


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"
