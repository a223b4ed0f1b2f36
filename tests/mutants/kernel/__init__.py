"""One correct tiled attention kernel in plain torch, every step of which can be broken by name."""

from __future__ import annotations

from .attention import attention
from .numerics import STORAGE_TYPES, Numerics, numerics_of

__all__ = ["STORAGE_TYPES", "Numerics", "attention", "numerics_of"]
