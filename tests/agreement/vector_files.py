"""Reads spec/vectors: exact numbers as Fractions, matrices with leading batch and head axes as pyspec has them."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "spec" / "vectors"


def cases(name: str) -> list[dict[str, Any]]:
    """The cases of one file."""
    loaded: list[dict[str, Any]] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return loaded


def numbers(nested: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Nested lists of numbers as an object array of Fractions; the shape is given, since an empty list has none."""
    flat: list[Fraction] = []

    def walk(x: Any) -> None:
        if isinstance(x, list):
            for part in x:
                walk(part)
        else:
            flat.append(Fraction(x))

    walk(nested)
    out = np.empty(len(flat), dtype=object)
    out[:] = flat
    return out.reshape(shape)


def mask(nested: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Nested lists of truth values as an array of this shape."""
    return np.array(nested, dtype=bool).reshape(shape)
