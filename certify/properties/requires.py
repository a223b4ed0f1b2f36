"""What a property asks of a subject's claims."""

from __future__ import annotations

from collections.abc import Callable

from attnspec.certify.subjects.claims import Capabilities, Skip, unclaimed


def requires(*names: str) -> Callable[[Capabilities], Skip | None]:
    """Why a subject cannot be held to a property that needs all of these features, or None."""
    return lambda claims: unclaimed(claims, names)
