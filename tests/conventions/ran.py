"""Programs run as text, and compared with what the subject's own run returned."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from attnspec.certify.conventions.execute import first_line
from attnspec.certify.conventions.program import Program, file_of
from attnspec.certify.observation import Observation


def same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    """Equal shapes and values, signs of zeros included; every NaN is equal to every other."""
    if one.shape != other.shape:
        return False
    lost = np.isnan(one)
    equal = (one == other) & (np.signbit(one) == np.signbit(other))
    return bool((equal | (lost & np.isnan(other))).all())


def as_printed(program: Program) -> dict[str, Any]:
    """What the printed file returns, executed here; None is left out."""
    names: dict[str, Any] = {}
    exec(compile(file_of({"run": program}), "printed", "exec"), names)
    return {n: t for n, t in names["run"]().items() if t is not None}


def differences(program: Program, seen: Observation) -> list[str]:
    """Tensors on which the printed program and the run differ; an exception must be the same as well."""
    try:
        found = as_printed(program)
    except Exception as error:
        said = str(error) if isinstance(error, AssertionError) else first_line(error)
        return [] if said == seen.error else [f"the program raises {said}, the run {seen.error}"]
    if seen.error is not None:
        return [f"the run raises {seen.error}, the program returns {list(found)}"]
    if set(found) != set(seen.tensors):
        return [f"the program returns {list(found)}, the run {list(seen.tensors)}"]
    wrong = []
    for name, tensor in found.items():
        array = tensor if isinstance(tensor, np.ndarray) else tensor.to(torch.float64).numpy()
        if not same_bits(array, seen.tensors[name]):
            wrong.append(name)
    return wrong
