"""Profiles: how large the drawn calls are."""

from __future__ import annotations

from dataclasses import dataclass, replace

from attnspec.strategies.chooser import one_of, weighted

# One below, at and one above the usual tile sizes, and the smallest lengths.
LENGTH_CLASSES = (1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 257)
# Lengths in between, so that nothing depends on the classes alone.
OTHER_LENGTHS = (4, 5, 8, 24, 40, 48, 100)
WIDTHS = (1, 2, 3, 4, 5, 8, 15, 16, 17, 24, 32, 33, 64, 65, 128)
HEADS = weighted((1, 4), (2, 3), (3, 1), (4, 2), (6, 1))
BATCHES = weighted((1, 3), (2, 2), (3, 1))


@dataclass(frozen=True)
class Profile:
    """Sizes that may be drawn, each tuple ascending, repeated by weight.

    scores: largest B·Hq·Q·K. elements: largest B·H·length·width of one tensor, except that width 1 and length 1
    are always allowed. shares: divisors of both limits, of which each call draws one, so that most calls are cheap.
    """

    name: str
    scores: int
    elements: int
    shares: tuple[int, ...] = weighted((32, 2), (8, 3), (1, 1))
    lengths: tuple[int, ...] = tuple(sorted(3 * LENGTH_CLASSES + OTHER_LENGTHS))
    widths: tuple[int, ...] = WIDTHS
    heads: tuple[int, ...] = HEADS
    batches: tuple[int, ...] = BATCHES


PROFILES: dict[str, Profile] = {
    "smoke": Profile("smoke", scores=20_000, elements=20_000),
    "pr": Profile("pr", scores=60_000, elements=40_000),
    "release": Profile("release", scores=300_000, elements=160_000),
}


def get_profile(profile: str | Profile) -> Profile:
    """The profile of that name, or the profile itself; a ValueError lists the known names."""
    if isinstance(profile, Profile):
        return profile
    one_of("profile", profile, tuple(PROFILES))
    return PROFILES[profile]


def small(profile: str | Profile) -> Profile:
    """The same profile with small shapes, for checks that run a subject many times: at most 2,000 scores."""
    full = get_profile(profile)
    return replace(
        full,
        name=f"{full.name}-small",
        scores=min(full.scores, 2_000),
        elements=min(full.elements, 4_000),
        shares=weighted((8, 1), (1, 1)),
        lengths=tuple(n for n in full.lengths if n <= 33),
    )
