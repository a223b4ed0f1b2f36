"""All planted bugs: at least one for every property, and one for every way to fail."""

from __future__ import annotations

from tests.snippets import bugs_of_functions, bugs_of_masks, bugs_of_subjects
from tests.snippets.planted import Planted

PLANTED: tuple[Planted, ...] = (*bugs_of_functions.BUGS, *bugs_of_masks.BUGS, *bugs_of_subjects.BUGS)


def of_property(prop_id: str) -> list[Planted]:
    """The wrong kernels that this property must refute."""
    return [planted for planted in PLANTED if prop_id in planted.refuted_by]
