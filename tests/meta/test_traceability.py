"""Properties and theorems name each other, and the tables in the documents say what the code says."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnspec.certify.evidence.traceability import DOCUMENTS, FOUNDATIONS, headlines, with_table
from attnspec.certify.trials import registered

ROOT = Path(__file__).parents[2]


def test_every_theorem_that_a_property_names_is_a_headline() -> None:
    known = headlines(ROOT)
    named = {(p.id, n) for p in registered().values() for n in (p.theorem, *p.also) if n is not None}
    assert not {(prop, name) for prop, name in named if name not in known}


def test_every_headline_theorem_has_a_property() -> None:
    named = {n for p in registered().values() for n in (p.theorem, *p.also)}
    assert set(headlines(ROOT)) - named == set(FOUNDATIONS)


def test_there_are_headlines_and_each_has_a_sentence() -> None:
    found = headlines(ROOT)
    assert len(found) >= 25
    assert all(sentence.endswith(".") for sentence in found.values())


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_the_table_in_the_document_is_current(document: Path) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    assert with_table(text) == text, "run `python -m attnspec.certify.evidence.traceability --write`"


def test_every_property_states_a_sentence_and_a_foundation() -> None:
    for prop in registered().values():
        assert prop.claim.endswith("."), prop.id
        assert prop.theorem is not None or prop.basis, prop.id
