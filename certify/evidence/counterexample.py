"""Counter-examples as files: one small JSON document that a replay reads, and the snippet that a person pastes."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any, Literal

import msgspec

from attnspec.certify.errors import UsageError, did_you_mean
from attnspec.certify.evidence.ledgers import ledger_as_data, ledger_from_data
from attnspec.certify.evidence.numbers import ratio_out
from attnspec.certify.properties.model import Outcome, Property
from attnspec.pyspec import AttentionCall, CallError, Judgement, Ledger, call_from_json, call_to_json

FORMAT: Literal["attnspec.counterexample/1"] = "attnspec.counterexample/1"
_ID = re.compile(r"[0-9a-f]{4,64}")


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Common options of all records."""


class Number(_Record, frozen=True):
    """A float64 twice: shortest decimal for reading, C99 hex for certainty ("inf", "nan" in both)."""

    decimal: str
    hex: str


class Observed(_Record, frozen=True):
    """The worst entry of one tensor: what came, what is exact, what was allowed."""

    tensor: str
    inside: bool
    worst: float | Literal["infinite"] | None
    index: list[int]
    observed: Number
    exact_lower: Number
    exact_upper: Number
    bound: Number
    outside_count: int
    size: int


class CounterExample(_Record, frozen=True):
    """One refuted claim: the property, the subject, the reduced call and the numbers seen. Holds no code to run.

    `call` is the document of attnspec.pyspec.call_to_json. `snippet` is text for people; nothing here executes it.
    """

    format: Literal["attnspec.counterexample/1"]
    id: str
    property: str
    claim: str
    theorem: str | None
    theorem_checked_here: bool
    subject: str
    device: str
    dtype: str
    isolated: bool
    ledger: dict[str, Any]
    broken: str | None
    observed: list[Observed]
    call: msgspec.Raw
    seed: int
    index: int
    profile: str
    reduced: bool
    snippet: str

    def attention_call(self) -> AttentionCall:
        """The reduced call, validated."""
        try:
            return call_from_json(bytes(self.call))
        except CallError as error:
            raise UsageError(f"counter-example {self.id}: {error}") from error

    def held_to(self) -> Ledger:
        """The ledger it was refuted under."""
        return ledger_from_data(self.ledger, f"counter-example {self.id}")


def number(value: float) -> Number:
    """A float64 as evidence."""
    return Number(decimal=repr(float(value)), hex=float(value).hex())


def observed_from(judgement: Judgement) -> Observed:
    """The numbers of one judgement."""
    lower, upper = judgement.exact
    return Observed(
        tensor=judgement.tensor,
        inside=not judgement.outside,
        worst=ratio_out(judgement.worst),  # type: ignore[arg-type]
        index=list(judgement.index or ()),
        observed=number(judgement.observed),
        exact_lower=number(lower),
        exact_upper=number(upper),
        bound=number(judgement.bound),
        outside_count=judgement.outside_count,
        size=judgement.size,
    )


def worst_by_tensor(outcome: Outcome) -> list[Observed]:
    """The worst judgement of each tensor (a check may run a subject several times), refuted ones first."""
    worst: dict[str, Judgement] = {}
    for j in sorted(outcome.judgements, key=_badness):
        worst[j.tensor] = j
    return [observed_from(j) for j in sorted(worst.values(), key=_badness, reverse=True)]


def _badness(judgement: Judgement) -> tuple[bool, float]:
    return (judgement.outside, judgement.worst)


def make_counterexample(
    *,
    prop: Property,
    subject: str,
    device: str,
    isolated: bool,
    ledger: Ledger,
    call: AttentionCall,
    outcome: Outcome,
    seed: int,
    index: int,
    profile: str,
    reduced: bool,
    snippet: str,
    theorem_checked_here: bool,
) -> CounterExample:
    """The record of a refutation; its id is a hash of the property, the subject, the ledger and the call."""
    document = call_to_json(call.but(origin={}))
    data = ledger_as_data(ledger)
    key = "\0".join(
        (prop.id, subject, device, call.dtype, msgspec.json.encode(data, order="sorted").decode(), document)
    )
    return CounterExample(
        format=FORMAT,
        id=hashlib.sha256(key.encode()).hexdigest()[:10],
        property=prop.id,
        claim=prop.claim,
        theorem=prop.theorem,
        theorem_checked_here=theorem_checked_here,
        subject=subject,
        device=device,
        dtype=call.dtype,
        isolated=isolated,
        ledger=data,
        broken=outcome.broken,
        observed=worst_by_tensor(outcome),
        # On one line: the record is also part of an event, and an event is a line.
        call=msgspec.Raw(msgspec.json.format(call_to_json(call).encode(), indent=-1)),
        seed=seed,
        index=index,
        profile=profile,
        reduced=reduced,
        snippet=snippet,
    )


def write_counterexample(record: CounterExample, folder: Path) -> Path:
    """Write ID.json and ID.py into the folder; return the path of the JSON file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{record.id}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
    claim = record.claim.replace("\n", " ")
    header = (
        f"# Counter-example {record.id} to {record.property}: {claim}\n"
        f"# Subject {record.subject} on {record.device}, {record.dtype}. Replay: certify replay {record.id}\n"
    )
    (folder / f"{record.id}.py").write_text(header + record.snippet.rstrip("\n") + "\n", encoding="utf-8")
    return path


def read_counterexample(path: Path) -> CounterExample:
    """The record in a file; a UsageError says what is wrong with it. Executes nothing."""
    try:
        record = msgspec.json.decode(path.read_bytes(), type=CounterExample)
    except OSError as error:
        raise UsageError(f"{path}: cannot read a counter-example: {error.strerror or error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not a counter-example of format {FORMAT}: {error}") from error
    # The id becomes a file name again when the record is written: nothing but a hash may stand there.
    if not _ID.fullmatch(record.id):
        raise UsageError(f"{path}: id = {record.id!r}: expected the hexadecimal hash that `certify` writes")
    return record


def find_counterexample(name: str, roots: tuple[Path, ...]) -> Path:
    """The file of an id, or of the start of one, under the folders; or the file that `name` is itself."""
    if Path(name).is_file():
        return Path(name)
    if Path(name).suffix == ".json" or "/" in name:
        raise UsageError(f"{name}: no such file: expected a counter-example's JSON file or its id")
    # The same id in two folders is the same refutation: the first will do.
    files = {f.stem: f for root in reversed(roots) for f in sorted(root.rglob("counterexamples/*.json"), reverse=True)}
    hits = sorted(stem for stem in files if stem.startswith(name))
    if not hits:
        where = ", ".join(str(root) for root in roots)
        raise UsageError(f"no counter-example {name!r} under {where}{did_you_mean(name, files)}: give a file, or --out")
    if len(hits) > 1 and name not in hits:
        raise UsageError(f"{name!r} is the start of {len(hits)} ids: {', '.join(hits)}: give more of it")
    return files[name if name in hits else hits[0]]
