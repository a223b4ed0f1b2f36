"""Phase "identify": a request becomes a subject on the bench, or one clear line that says why not."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from attnspec.certify.campaign.budget import DEFAULT_DTYPES, PROFILES
from attnspec.certify.campaign.parts import Parts
from attnspec.certify.errors import MissingDevice, NothingSelected, UsageError
from attnspec.certify.evidence.ledgers import LedgerFor, ledger_option
from attnspec.certify.subject import Subject
from attnspec.certify.subjects.isolate import CALL_TIMEOUT
from attnspec.certify.trials.property import Property
from attnspec.certify.verdict.waivers import Divergence, read_divergences
from attnspec.pyspec.calls.errors import did_you_mean


@dataclass(frozen=True)
class Request:
    """What the user asked for, for one subject. `dtypes` empty: what the subject claims (see DEFAULT_DTYPES)."""

    subject: str
    out: Path
    device: str = "cpu"
    dtypes: tuple[str, ...] = ()
    profile: str = "pr"
    seed: int = 0
    examples: int | None = None
    only: tuple[str, ...] = ()
    ledger: str | None = None
    known_divergences: Path | None = None
    isolate: bool | None = None
    time_limit: float | None = None
    call_timeout: float = CALL_TIMEOUT


@dataclass(frozen=True, eq=False)
class Ready:
    """A request whose every part was found. `missing` says why there is no subject (its device is absent)."""

    request: Request
    subject: Subject | None
    isolated: bool
    dtypes: tuple[str, ...]
    properties: tuple[Property, ...]
    ledger_for: LedgerFor | None
    divergences: tuple[Divergence, ...]
    missing: str | None = None


def slug(subject: str) -> str:
    """A subject's name as a folder name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", subject).strip("-.") or "subject"


def prepare(request: Request, parts: Parts) -> Ready:
    """Find everything the request names. Raises UsageError or NothingSelected; a missing device is recorded."""
    if request.profile not in PROFILES:
        raise UsageError(f"--profile {request.profile!r}: expected one of {', '.join(PROFILES)}")
    if request.examples is not None and request.examples < 1:
        raise UsageError(f"--examples {request.examples}: expected a positive number")
    if request.time_limit is not None and not request.time_limit > 0:
        raise UsageError(f"--time-limit {request.time_limit:g}: expected a positive number of seconds")
    properties = select_properties(parts.properties(), request.only)
    divergences = () if request.known_divergences is None else read_divergences(request.known_divergences)
    _writeable(request.out)
    isolated = request.isolate if request.isolate is not None else parts.foreign(request.subject)
    try:
        subject = load(request.subject, request.device, isolated, parts, request.call_timeout)
        dtypes = select_dtypes(request, subject)
        ledger_for = ledger_option(request.ledger, subject.ledger, dtypes)
    except MissingDevice as error:
        return Ready(request, None, isolated, request.dtypes, properties, None, divergences, str(error))
    return Ready(request, subject, isolated, dtypes, properties, ledger_for, divergences)


def load(spec: str, device: str, isolated: bool, parts: Parts, timeout: float = CALL_TIMEOUT) -> Subject:
    """The subject, in a process of its own when isolated; a UsageError when it does not claim the device."""
    subject = parts.fresh(spec, device, timeout) if isolated else parts.load(spec, device)
    claimed = subject.capabilities.devices
    if device.partition(":")[0] not in claimed:
        raise UsageError(f"--device {device}: {spec} does not claim it: expected one of {', '.join(claimed)}")
    return subject


def select_dtypes(request: Request, subject: Subject) -> tuple[str, ...]:
    """The dtypes asked for, or by default what the subject claims among the usual ones (all for release)."""
    claimed = subject.capabilities.dtypes
    for dtype in request.dtypes:
        if dtype not in claimed:
            raise UsageError(
                f"--dtype {dtype}: {request.subject} does not claim it{did_you_mean(dtype, claimed)}: "
                f"expected one of {', '.join(claimed)}"
            )
    if request.dtypes:
        return tuple(dict.fromkeys(request.dtypes))
    usual = tuple(d for d in DEFAULT_DTYPES if d in claimed)
    return tuple(claimed) if request.profile == "release" or not usual else usual


def select_properties(known: Mapping[str, Property], only: tuple[str, ...]) -> tuple[Property, ...]:
    """The properties that `--only` names, by id or glob pattern; all of them when it is not given."""
    if not only:
        return tuple(known.values())
    chosen: dict[str, Property] = {}
    for pattern in only:
        hits = {i: p for i, p in known.items() if fnmatch.fnmatchcase(i, pattern)}
        if not hits and any(c in pattern for c in "*?["):
            raise NothingSelected(f"--only {pattern!r} matches no property: `certify list properties` names them")
        if not hits:
            raise UsageError(
                f"--only {pattern!r}: unknown property{did_you_mean(pattern, known)}: "
                "`certify list properties` names them"
            )
        chosen.update(hits)
    return tuple(p for i, p in known.items() if i in chosen)


def _writeable(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe = out / ".write-test"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UsageError(f"--out {out}: cannot write there: {error.strerror or error}") from error
