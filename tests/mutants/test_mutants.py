"""`pytest -m mutants`: the campaign refutes every planted bug within the `pr` profile, and not the kernel itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest
import torch

from attnspec.certify.trials import Held, registered

from .bug import Bug
from .catalogue import live
from .hunt import check, deck, hunt
from .subject import ZOO, ZooSubject

pytestmark = [pytest.mark.mutants, pytest.mark.slow]

Record = Callable[[str, object], None]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Tiles are too small to share out, and workers share the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pairs() -> list[tuple[Bug, str]]:
    """Every bug in float32 where it acts there, the numerical ones in both low formats."""
    chosen = []
    for bug in live():
        low = ("bfloat16", "float16") if bug.kind == "low_precision" else ()
        dtypes = [d for d in ("float32", *low) if d in bug.dtypes] or [bug.dtypes[0]]
        chosen += [(bug, d) for d in dtypes]
    return chosen


@pytest.mark.parametrize(("bug", "dtype"), [pytest.param(b, d, id=f"{b.name}-{d}") for b, d in pairs()])
def test_mutant_is_refuted_within_the_pr_profile(bug: Bug, dtype: str, record_property: Record) -> None:
    found = hunt(ZooSubject(frozenset({bug.name})), deck(dtype))
    assert found is not None, f"{bug.name} survives {len(deck(dtype))} cases in {dtype}"
    record_property("mutant", bug.name)
    record_property("kind", bug.kind)
    record_property("dtype", dtype)
    record_property("cases", found.cases)
    record_property("seconds", round(found.seconds, 4))
    record_property("property", found.property)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_unmutated_kernel_is_certified_on_the_same_cases(dtype: str) -> None:
    subject = ZooSubject()
    held, seen, alarms = Held(subject, subject.ledger), Counter[tuple[str, str]](), []
    for card in deck(dtype):
        outcome = check(card, held)
        seen[card.prop.id, outcome.status] += 1
        if outcome.refuted:
            alarms.append((card.prop.id, card.index, outcome))
    assert not alarms
    held = {name for name, status in seen if status == "held"}
    expected = {p.id for p in registered().values() if p.needs(ZOO) is None}
    assert held == expected, f"no case was tested of {sorted(expected - held)}"
