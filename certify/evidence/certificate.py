"""The certificate: what was asked, what was seen, what follows. Plain data, written and read as JSON.

Ratios are finite numbers, the word "infinite" (an error where none is allowed, or a value that is not finite),
or null (nothing was judged). Reading a certificate executes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from attnspec.certify.errors import UsageError

FORMAT: Literal["attnspec.certificate/2"] = "attnspec.certificate/2"

State = Literal[
    "held", "refuted", "waived", "not_covered", "not_run", "undecided", "unfinished", "not_reproducible", "own_fault"
]
Verdict = Literal["CERTIFIED", "CERTIFIED WITH WAIVERS", "REFUTED", "INCOMPLETE"]
RatioField = float | Literal["infinite"] | None

LETTERS: dict[str, str] = {
    "held": "H",
    "refuted": "R",
    "waived": "W",
    "not_covered": "C",
    "not_run": "N",
    "undecided": "D",
    "unfinished": "U",
    "not_reproducible": "X",
    "own_fault": "F",
}
MEANINGS: dict[str, str] = {
    "held": "held on every case tested",
    "refuted": "a case breaks the claim",
    "waived": "refuted, and listed as a known divergence",
    "not_covered": "outside the subject's claim, or of no call that it claims",
    "not_run": "no case could be tested",
    "undecided": "too many cases that no precision decided",
    "unfinished": "stopped before its last case",
    "not_reproducible": "a fresh process decided a case differently",
    "own_fault": "this package failed while checking",
}


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Common options of all records."""


class SubjectRecord(_Record, frozen=True):
    """What was certified. `identity` comes from the subject: versions, kernel, source digest."""

    spec: str
    name: str
    device: str
    isolated: bool
    identity: dict[str, str]
    capabilities: dict[str, Any]


class RequestRecord(_Record, frozen=True):
    """What was asked for. Input i of a property and dtype is a pure function of seed, profile and i."""

    profile: str
    seed: int
    dtypes: list[str]
    examples: int | None
    only: list[str]
    time_limit: float | None
    ledger: str | None


class TensorRecord(_Record, frozen=True):
    """One output tensor under one property and dtype: largest error ÷ bound, and how much was judged.

    `vacuous` counts cases whose bound was as wide as the tensor itself: they say nothing, and are not in `cases`.
    """

    worst: RatioField
    cases: int
    elements: int
    vacuous: int


class SkipRecord(_Record, frozen=True):
    """Why so many drawn cases were not tested: outside the claim, a known divergence, or no call of the property."""

    kind: Literal["not_claimed", "known_divergence", "no_such_call"]
    feature: str
    text: str
    cases: int


class PropertyRecord(_Record, frozen=True):
    """One property at one dtype.

    `cases` were tested; `skips` counts what was drawn and not tested, by reason; `vacuous` counts cases in which every
    bound said nothing, `undecided` those that the highest precision did not decide. `worst_index` is the index of the
    worst input.
    """

    id: str
    dtype: str
    state: State
    claim: str
    theorem: str | None
    basis: str
    cases: int
    drawn: int
    vacuous: int
    undecided: int
    skips: list[SkipRecord]
    worst: RatioField
    worst_index: int | None
    tensors: dict[str, TensorRecord]
    counterexample: str | None = None
    note: str | None = None


class WaiverRecord(_Record, frozen=True):
    """A refuted property that its owner has declared a known divergence."""

    property: str
    dtype: str
    counterexample: str | None
    owner: str
    reason: str
    expires: str


class AuditRecord(_Record, frozen=True):
    """Cases run again with the subject in a fresh process. `verdicts_differ` of them came out the other way."""

    rerun: int
    values_differ: int
    verdicts_differ: int
    lines: list[str]


class SelfCheckRecord(_Record, frozen=True):
    """Planted bugs that must be caught, and a right kernel that must not be."""

    passed: bool
    caught: list[str]
    missed: list[str]
    lines: list[str]


class ProofRecord(_Record, frozen=True):
    """Whether the theorems were compiled here, under what, and whether the files match what was compiled.

    compiled: "here" or "not here". agrees: true, false, or null where there was nothing to compare.
    """

    compiled: Literal["here", "not here"]
    toolchain: str | None
    digests: dict[str, str]
    vectors: str
    agrees: bool | None
    theorems: list[str]
    detail: str


class StoredRecord(_Record, frozen=True):
    """Counter-examples found by earlier runs, run again first."""

    still_refuted: list[str]
    hold_now: list[str]
    set_aside: list[str]


class TimesRecord(_Record, frozen=True):
    """Wall time: start in UTC, seconds in all and by phase. The only part that two equal runs do not share."""

    started: str
    seconds: float
    phases: dict[str, float]


class Certificate(_Record, frozen=True):
    """The whole document."""

    format: Literal["attnspec.certificate/2"]
    verdict: Verdict
    exit_code: int
    reasons: list[str]
    subject: SubjectRecord
    request: RequestRecord
    environment: dict[str, str]
    ledgers: dict[str, dict[str, Any]]
    proofs: ProofRecord
    self_check: SelfCheckRecord | None
    stored: StoredRecord
    properties: list[PropertyRecord]
    tensors: dict[str, dict[str, TensorRecord]]
    cases: int
    coverage: dict[str, dict[str, int]]
    kernels: dict[str, int]
    waivers: list[WaiverRecord]
    warnings: list[str]
    audit: AuditRecord | None
    not_claimed: list[str]
    times: TimesRecord


def left_out_as_known(rows: Sequence[PropertyRecord]) -> dict[str, int]:
    """Cases not covered because the subject lists them as a known divergence, by reason."""
    found: Counter[str] = Counter()
    for row in rows:
        found.update({s.text: s.cases for s in row.skips if s.kind == "known_divergence"})
    return dict(sorted(found.items()))


def to_json(certificate: Certificate) -> str:
    """The certificate as an indented JSON document."""
    return msgspec.json.format(msgspec.json.encode(certificate), indent=2).decode() + "\n"


def read_certificate(path: Path) -> Certificate:
    """The certificate in a file or folder; a UsageError says what is wrong with it."""
    file = path / "certificate.json" if path.is_dir() else path
    try:
        return msgspec.json.decode(file.read_bytes(), type=Certificate)
    except OSError as error:
        raise UsageError(f"{file}: cannot read a certificate: {error.strerror or error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: not a certificate of format {FORMAT}: {error}") from error


def schema() -> dict[str, Any]:
    """JSON Schema of a certificate, as published in certify/evidence/schema/certificate.schema.json."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(Certificate)}


if __name__ == "__main__":
    # Regenerates the published schema.
    import json

    path = Path(__file__).parent / "schema" / "certificate.schema.json"
    path.write_text(json.dumps(schema(), indent=1, sort_keys=True) + "\n", encoding="utf-8")
