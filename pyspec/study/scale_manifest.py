"""What a subject says about its scale before a run, and the gate that refuses each way to get it wrong."""

from __future__ import annotations

import math
from dataclasses import dataclass

from attnspec.pyspec.scale import default_scale


class ScaleError(ValueError):
    """A scale manifest breaks its contract; the message names the field, the value and the mend."""


@dataclass(frozen=True)
class ScaleManifest:
    """What a subject says about its scale, to be checked before anything runs.

    multiplier: the number that multiplies query·key. applications: how often. meaning: "multiplier", or
    "denominator" for an interface whose number divides (refused: hand over its inverse). width: the width from
    which a default was derived, None when the multiplier was set by hand. query_prescaled: the query already
    carries the multiplier, so the kernel must be given 1.0.
    """

    multiplier: float
    applications: int = 1
    meaning: str = "multiplier"
    width: int | None = None
    query_prescaled: bool = False
    kernel_scale: float | None = None


def check_scale(manifest: ScaleManifest, key_width: int) -> float:
    """The multiplier to hand to a kernel; a ScaleError names the first field that is wrong.

    Refuses a multiplier applied other than once, a denominator, a width that is not the key width, a default that
    is not width ** -0.5, and a kernel scale that would scale a second time. kernel_scale None means the kernel's
    own default, key_width ** -0.5.
    """
    m = manifest
    if not math.isfinite(m.multiplier):
        raise ScaleError(f"multiplier = {m.multiplier!r}: expected a finite number")
    if m.meaning != "multiplier":
        raise ScaleError(
            f"meaning = {m.meaning!r}: the scale multiplies the scores; hand over 1 / {m.multiplier!r} instead"
        )
    if m.applications != 1:
        raise ScaleError(f"applications = {m.applications}: the scale is applied exactly once")
    if m.width is not None and m.width != key_width:
        raise ScaleError(
            f"width = {m.width}: the default scale is derived from the key width {key_width}, "
            "not from the width of the model or of the value"
        )
    if m.width is not None and m.multiplier != default_scale(key_width):
        raise ScaleError(f"multiplier = {m.multiplier!r}: expected {default_scale(key_width)!r} = {key_width} ** -0.5")
    wanted = 1.0 if m.query_prescaled else m.multiplier
    given = default_scale(key_width) if m.kernel_scale is None else m.kernel_scale
    if given != wanted:
        why = "the query already carries the multiplier" if m.query_prescaled else "the multiplier is handed over"
        raise ScaleError(f"kernel_scale = {m.kernel_scale!r} applies {given!r}: expected {wanted!r}, because {why}")
    return wanted
