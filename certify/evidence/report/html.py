"""report.html: one file for a browser, without scripts or network."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

from attnspec.certify.evidence.certificate import LETTERS, MEANINGS, Certificate, PropertyRecord
from attnspec.certify.evidence.counterexample import CounterExample
from attnspec.certify.evidence.numbers import ratio_in, ratio_text
from attnspec.certify.evidence.report.summary import facts
from attnspec.certify.evidence.report.text import refutation


def html(certificate: Certificate, examples: Mapping[str, CounterExample]) -> str:
    """The page. Everything that came from outside is escaped by the template."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["ratio"] = ratio_text
    template = environment.from_string(
        files("attnspec.certify").joinpath("evidence/templates/report.html").read_text(encoding="utf-8")
    )
    return template.render(
        certificate=certificate,
        tone={"CERTIFIED": "good", "REFUTED": "bad"}.get(certificate.verdict, "open"),
        facts=list(facts(certificate)),
        rows=matrix(certificate),
        letters=LETTERS,
        meanings=MEANINGS,
        failures=[
            (row, example, refutation(example, certificate.proofs))
            for row in certificate.properties
            if (example := examples.get(row.counterexample or "")) is not None
        ],
        share=share,
    )


def matrix(certificate: Certificate) -> list[tuple[PropertyRecord, dict[str, PropertyRecord]]]:
    """One entry a claim: any of its rows for the words, and its rows by dtype."""
    rows: dict[str, dict[str, PropertyRecord]] = {}
    for row in certificate.properties:
        rows.setdefault(row.id, {})[row.dtype] = row
    return [(next(iter(by_dtype.values())), by_dtype) for by_dtype in rows.values()]


def share(row: PropertyRecord) -> int:
    """Worst error ÷ bound as a percentage of the bound, at most 100."""
    return int(min(ratio_in(row.worst), 1.0) * 100)
