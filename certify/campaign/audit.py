"""Audit: some cases again, with the subject in a fresh process. A verdict that depends on the process is none."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from attnspec.certify.campaign.budget import audited
from attnspec.certify.campaign.search import Draw, Tally, check_case
from attnspec.certify.errors import CertifyError
from attnspec.certify.evidence.certificate import AuditRecord
from attnspec.certify.trials.held import Held


@dataclass(frozen=True, eq=False)
class Audited:
    """A pair to look at again: its tally, and how its inputs are drawn."""

    tally: Tally
    draw: Draw


@dataclass(frozen=True)
class Audit:
    """The record, and the pairs (property, dtype) whose verdict came out the other way."""

    record: AuditRecord
    differing: frozenset[tuple[str, str]]


def audit(
    pairs: Sequence[Audited],
    fresh: Callable[[], Held],
    seed: int,
    deadline: float | None,
    redo: Sequence[tuple[str, str, Callable[[Held], bool]]] = (),
) -> Audit | None:
    """Run the sample again; None when the time is out first. `redo` lists (property, dtype, still refuted?) of
    counter-examples, which are run again too.
    """
    lines: list[str] = []
    differing: set[tuple[str, str]] = set()
    rerun = values = verdicts = 0
    held: Held | None = None
    for pair in pairs:
        tally = pair.tally
        if tally.refuting is not None:
            continue
        for index in audited(seed, tally.tested):
            if deadline is not None and time.monotonic() > deadline:
                return None
            try:
                held = fresh() if held is None else held
                again = check_case(tally.prop, held, pair.draw, index)
            except CertifyError as error:
                return _impossible(f"not possible: {error}")
            before = tally.signatures[index]
            rerun += 1
            if again.signature == before:
                continue
            where = f"{tally.prop.id} ({tally.dtype}) case {index}"
            if again.status != before[0]:
                differing.add((tally.prop.id, tally.dtype))
                verdicts += 1
                lines.append(f"not reproducible: {where} was {before[0]}, a fresh process says {again.status}")
            else:
                values += 1
                lines.append(f"other values: {where}: same verdict, different bits")
    for name, dtype, refuted in redo:
        rerun += 1
        try:
            held = fresh() if held is None else held
            same = refuted(held)
        except CertifyError as error:
            return _impossible(f"not possible: {error}")
        except Exception:
            same = False
        if not same:
            verdicts += 1
            lines.append(f"not reproducible: the counter-example to {name} ({dtype}) holds in a fresh process")
    record = AuditRecord(rerun=rerun, values_differ=values, verdicts_differ=verdicts, lines=lines)
    return Audit(record, frozenset(differing))


def _impossible(line: str) -> Audit:
    return Audit(AuditRecord(rerun=0, values_differ=0, verdicts_differ=0, lines=[line]), frozenset())
