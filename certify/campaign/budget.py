"""How many cases a property gets, by profile."""

from __future__ import annotations

import hashlib

from attnspec.certify.trials.property import Property

PROFILES = ("smoke", "pr", "release")

# Formats that are run where the user names none and the subject claims them.
DEFAULT_DTYPES = ("float32", "bfloat16")

_CASES = {"smoke": 6, "pr": 40, "release": 400}

# Checks that run a subject several times on one call see more of it per case.
_SMALL_SHARE = 0.75

# After this many refutations the verdict is settled, and what is left only helps to find the bug.
SETTLED = 3
_SETTLED_SHARE = 0.25

# A property whose cases all fall outside the claim is given this many times its budget before it counts as not run.
PATIENCE = 8

AUDIT_SHARE = 0.05

# A row with a larger share of undecided cases among those that were judged is undecided itself.
UNDECIDED_SHARE = 0.05


# A kernel with one bug breaks many claims. The first refutations are made as small as can be, the later ones less;
# below THOROUGH, a small call that already refutes another claim is taken as it is where it serves.
_REDUCTIONS = ((2, 1200), (6, 150))
_LATER_REDUCTIONS = 30
THOROUGH = 100


def reduction_budget(already_refuted: int) -> int:
    """Tries that making the next refuting call smaller may take."""
    return next((tries for most, tries in _REDUCTIONS if already_refuted < most), _LATER_REDUCTIONS)


def cases_for(prop: Property, profile: str, examples: int | None = None) -> int:
    """Cases of a property for each dtype: `examples` when given, otherwise the profile's budget."""
    if examples is not None:
        return examples
    count = _CASES[profile]
    if prop.share > 1.0:
        return round(count * prop.share)
    return max(3, int(count * _SMALL_SHARE)) if prop.small else count


def cases_once_settled(cases: int) -> int:
    """Cases of a property when SETTLED others are refuted already."""
    return min(cases, max(5, int(cases * _SETTLED_SHARE)))


def seed_for(seed: int, property_id: str, dtype: str) -> int:
    """The generator seed of one property and dtype: a stable hash, so that input i can be drawn anywhere."""
    digest = hashlib.sha256(f"attnspec\0{seed}\0{property_id}\0{dtype}".encode()).digest()
    return int.from_bytes(digest[:7], "little")


def audited(seed: int, tested: list[int]) -> list[int]:
    """The indices of a pair's cases that are run again: about one in twenty, at least one, chosen by hash."""
    if not tested:
        return []
    count = max(1, round(AUDIT_SHARE * len(tested)))

    def rank(index: int) -> bytes:
        return hashlib.sha256(f"audit\0{seed}\0{index}".encode()).digest()

    return sorted(sorted(tested, key=rank)[:count])
