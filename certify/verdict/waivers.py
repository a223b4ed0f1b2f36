"""Known divergences: refutations that a subject's owner has declared, each with a reason and an expiry date."""

from __future__ import annotations

import datetime
import fnmatch
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from attnspec.certify.errors import UsageError
from attnspec.pyspec.calls.errors import did_you_mean

_TEXTS = ("property", "subject", "dtype", "owner", "reason")


@dataclass(frozen=True)
class Divergence:
    """One `[[divergence]]` table. `property`, `subject` and `dtype` are glob patterns; it ends with `expires`."""

    property: str
    subject: str
    dtype: str
    owner: str
    reason: str
    expires: datetime.date

    def matches(self, property_id: str, subject: str, dtype: str) -> bool:
        """Does it speak of that property, subject and dtype?"""
        pairs = ((property_id, self.property), (subject, self.subject), (dtype, self.dtype))
        return all(fnmatch.fnmatchcase(value, pattern) for value, pattern in pairs)

    def live(self, today: datetime.date) -> bool:
        """Does it still waive on that day?"""
        return today <= self.expires

    def __str__(self) -> str:
        return f"{self.property} of {self.subject} in {self.dtype} (owner {self.owner}, until {self.expires})"


def read_divergences(path: Path) -> tuple[Divergence, ...]:
    """The divergences in a TOML file; a UsageError names the entry and the key that is wrong."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--known-divergences {path}: cannot read it: {error.strerror or error}") from error
    except ValueError as error:
        raise UsageError(f"--known-divergences {path}: not valid TOML: {error}") from error
    extra = sorted(set(data) - {"divergence"})
    entries = data.get("divergence", [])
    if extra or not isinstance(entries, list) or not all(isinstance(e, dict) for e in entries):
        found = extra[0] if extra else "divergence"
        raise UsageError(f"--known-divergences {path}: {found!r}: expected [[divergence]] tables and nothing else")
    return tuple(_entry(path, i, entry) for i, entry in enumerate(entries, 1))


def _entry(path: Path, number: int, entry: dict[str, object]) -> Divergence:
    where = f"--known-divergences {path}: divergence {number}"
    keys = (*_TEXTS, "expires")
    for key in entry:
        if key not in keys:
            raise UsageError(f"{where}: unknown key {key!r}{did_you_mean(key, keys)}: expected {', '.join(keys)}")
    for key in _TEXTS:
        value = entry.get(key)
        if not isinstance(value, str) or not value.strip():
            raise UsageError(f"{where}: {key} = {value!r}: expected a text")
    expires = entry.get("expires")
    if isinstance(expires, datetime.datetime) or not isinstance(expires, datetime.date):
        raise UsageError(f"{where}: expires = {expires!r}: expected a date such as 2027-01-31, without quotes")
    return Divergence(**{key: str(entry[key]) for key in _TEXTS}, expires=expires)


def find_waiver(
    entries: Sequence[Divergence], property_id: str, subject: str, dtype: str, today: datetime.date
) -> Divergence | None:
    """The first live divergence that speaks of a refuted property."""
    return next((e for e in entries if e.matches(property_id, subject, dtype) and e.live(today)), None)


def stale(
    entries: Sequence[Divergence],
    subject: str,
    refuted: Sequence[tuple[str, str]],
    today: datetime.date,
    ran: Sequence[tuple[str, str]],
) -> tuple[str, ...]:
    """Warnings for entries about this subject that waived nothing: expired, or what they list holds now.

    `refuted` and `ran` list (property, dtype). An entry is stale only when something it speaks of was run.
    """
    found = []
    for entry in entries:
        if not entry.live(today):
            if fnmatch.fnmatchcase(subject, entry.subject):
                found.append(f"known divergence expired on {entry.expires} and waives nothing: {entry}")
        elif any(entry.matches(p, subject, d) for p, d in ran) and not any(
            entry.matches(p, subject, d) for p, d in refuted
        ):
            found.append(f"known divergence is stale, nothing it lists was refuted: {entry}")
    return tuple(found)
