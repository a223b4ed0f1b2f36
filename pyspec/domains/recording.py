"""Watching an evaluation: a twin of any domain that computes the same and keeps every named stage."""

from __future__ import annotations

from copy import copy
from typing import Any, TypeVar

from attnspec.pyspec.domain import Domain

D = TypeVar("D", bound=Domain[Any])


def recording(dom: D) -> tuple[D, dict[str, Any]]:
    """The twin, and the stages that it has kept so far, by name and in the twin's own matrices.

    Names are those of attnspec.pyspec.oracle.trace.STAGES. A stage that is computed again is kept as it was last.
    """
    twin = copy(dom)
    twin.kept = {}
    return twin, twin.kept
