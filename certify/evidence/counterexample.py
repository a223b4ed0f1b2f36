"""Counter-examples as files: one JSON document that a replay reads, and the snippet that a person pastes.

The record is the failing trial itself: the run, argument for argument, and what was expected of it.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import msgspec

from attnspec.certify.errors import UsageError
from attnspec.certify.evidence.ledgers import ledger_as_data, ledger_from_data
from attnspec.certify.evidence.numbers import ratio_out
from attnspec.certify.trials.outcome import Outcome, badness
from attnspec.certify.trials.property import Property
from attnspec.certify.trials.record import TrialError, trial_from_data, trial_to_data
from attnspec.certify.trials.trial import Trial
from attnspec.pyspec import AttentionCall, CallError, Judgement, Ledger, call_from_json, call_to_json
from attnspec.pyspec.calls.errors import did_you_mean

FORMAT: Literal["attnspec.counterexample/2"] = "attnspec.counterexample/2"
_OLDER = "attnspec.counterexample/1"
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


class FailureRecord(_Record, frozen=True):
    """Something wrong that is no number: its kind, the tensor it is about ("": none), and words for people."""

    kind: str
    tensor: str
    text: str


class CounterExample(_Record, frozen=True):
    """One refuted claim: the property, the subject, the failing trial and what was seen. Holds no code to run.

    call_timeout: seconds that a call may take in a process of its own, None where it has none or the usual time.
    trial: the document of attnspec.certify.trials.trial_to_data, the run as it was made. base: that of
    pyspec.call_to_json, the call from which the property derived the trial. mistakes: wrong models that the result
    agrees with. snippet: text for people; nothing here executes it.
    """

    format: Literal["attnspec.counterexample/2"]
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
    failures: list[FailureRecord]
    mistakes: list[str]
    observed: list[Observed]
    trial: msgspec.Raw
    base: msgspec.Raw
    seed: int
    index: int
    profile: str
    reduced: bool
    snippet: str
    call_timeout: float | None = None

    def failing_trial(self) -> Trial:
        """The trial that failed, validated."""
        try:
            return trial_from_data(msgspec.json.decode(bytes(self.trial)))
        except (CallError, TrialError, msgspec.DecodeError) as error:
            raise UsageError(f"counter-example {self.id}: {error}") from error

    def base_call(self) -> AttentionCall:
        """The call from which the trial was derived, validated."""
        try:
            return call_from_json(bytes(self.base))
        except CallError as error:
            raise UsageError(f"counter-example {self.id}: {error}") from error

    def held_to(self) -> Ledger:
        """The ledger it was refuted under."""
        return ledger_from_data(self.ledger, f"counter-example {self.id}")


def in_words(record: CounterExample) -> str | None:
    """What is wrong, where words say more than the numbers: the failures, else the mistakes that fit."""
    return "; ".join(f.text for f in record.failures) or " or ".join(record.mistakes) or None


@dataclass(frozen=True, eq=False)
class Refutation:
    """A refuted property: the subject, what it was held to, the base call, the failing trial and its outcome."""

    prop: Property
    subject: str
    device: str
    isolated: bool
    ledger: Ledger
    base: AttentionCall
    trial: Trial
    outcome: Outcome
    seed: int = 0
    index: int = 0
    profile: str = ""
    reduced: bool = False
    call_timeout: float | None = None


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
    for j in sorted(outcome.judgements, key=badness, reverse=True):
        # Of equally bad ones the first, as the snippet has it.
        worst.setdefault(j.tensor, j)
    return [observed_from(j) for j in worst.values()]


def make_counterexample(found: Refutation, snippet: str, *, theorem_checked_here: bool) -> CounterExample:
    """The record of a refutation; its id is a hash of the property, the subject, the ledger and the trial."""
    data = ledger_as_data(found.ledger)
    trial = _document(found.trial)
    unlabelled = _document(replace(found.trial, call=found.trial.call.but(origin={})))
    ledger = msgspec.json.encode(data, order="sorted")
    names = (found.prop.id, found.subject, found.device, found.base.dtype)
    key = "\0".join(names).encode() + b"\0" + ledger + b"\0" + unlabelled
    return CounterExample(
        format=FORMAT,
        id=hashlib.sha256(key).hexdigest()[:10],
        property=found.prop.id,
        claim=found.prop.claim,
        theorem=found.prop.theorem,
        theorem_checked_here=theorem_checked_here,
        subject=found.subject,
        device=found.device,
        dtype=found.base.dtype,
        isolated=found.isolated,
        ledger=data,
        **seen_in(found.outcome),
        trial=msgspec.Raw(trial),
        # On one line: the record is also part of an event, and an event is a line.
        base=msgspec.Raw(msgspec.json.format(call_to_json(found.base).encode(), indent=-1)),
        seed=found.seed,
        index=found.index,
        profile=found.profile,
        reduced=found.reduced,
        snippet=snippet,
        call_timeout=found.call_timeout,
    )


def seen_in(outcome: Outcome) -> dict[str, Any]:
    """The fields of a record that say what was seen."""
    return {
        "failures": [FailureRecord(kind=f.kind, tensor=f.tensor, text=f.text) for f in outcome.failures],
        "mistakes": list(outcome.mistakes),
        "observed": worst_by_tensor(outcome),
    }


def _document(trial: Trial) -> bytes:
    return msgspec.json.encode(trial_to_data(trial))


def write_counterexample(record: CounterExample, folder: Path) -> Path:
    """Write ID.json and ID.py into the folder; return the path of the JSON file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{record.id}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
    claim = record.claim.replace("\n", " ")
    header = (
        # Python reads "coding: word" in the first two lines as the file's encoding, as in "cached-decoding: The last".
        "# -*- coding: utf-8 -*-\n"
        f"# Counter-example {record.id} to {record.property}: {claim}\n"
        f"# Subject {record.subject} on {record.device}, {record.dtype}. Replay: certify replay {record.id}\n"
    )
    (folder / f"{record.id}.py").write_text(header + record.snippet.rstrip("\n") + "\n", encoding="utf-8")
    return path


def read_counterexample(path: Path) -> CounterExample:
    """The record in a file; a UsageError says what is wrong with it. Executes nothing."""
    try:
        raw = path.read_bytes()
        if _OLDER.encode() in raw[:80]:
            raise UsageError(
                f"{path}: written by an older version (format {_OLDER}), whose records kept another call than the one "
                "that failed: delete it and run `certify run` again"
            )
        record = msgspec.json.decode(raw, type=CounterExample)
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
