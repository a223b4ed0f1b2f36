"""summary.md: the verdict for a comment under a change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attnspec.certify.evidence.certificate import LETTERS, MEANINGS, Certificate
from attnspec.certify.evidence.counterexample import CounterExample
from attnspec.certify.evidence.numbers import ratio_text
from attnspec.certify.evidence.report.summary import facts
from attnspec.certify.evidence.report.text import refutation


def markdown(certificate: Certificate, examples: Mapping[str, CounterExample]) -> str:
    """The summary as Markdown."""
    return "\n".join(_lines(certificate, examples)) + "\n"


def _lines(certificate: Certificate, examples: Mapping[str, CounterExample]) -> Iterator[str]:
    request = certificate.request
    yield f"# {certificate.verdict}: {_cell(certificate.subject.spec)}"
    yield ""
    yield (
        f"Device {certificate.subject.device}, {', '.join(request.dtypes) or 'no dtype'}, "
        f"profile {request.profile}, seed {request.seed}."
    )
    yield ""
    for reason in certificate.reasons:
        yield f"- {_cell(reason)}"
    for fact in facts(certificate):
        yield f"- {_cell(fact)}"
    yield f"- proofs: {_cell(certificate.proofs.detail)}"
    yield ""
    if certificate.properties:
        yield "| claim | dtype | state | cases | worst error ÷ bound | theorem |"
        yield "| --- | --- | --- | ---: | ---: | --- |"
        for row in certificate.properties:
            yield (
                f"| {_cell(row.id)} | {row.dtype} | {LETTERS[row.state]} {MEANINGS[row.state]} | {row.cases} "
                f"| {ratio_text(row.worst)} | {_cell(row.theorem or 'tested only')} |"
            )
        yield ""
    for row in certificate.properties:
        example = examples.get(row.counterexample or "")
        if example is not None:
            yield f"## {_cell(row.id)} ({row.dtype})"
            yield ""
            # Indented code cannot be ended by anything inside it.
            yield from (f"    {line}" for line in refutation(example).splitlines())
            yield ""
    yield "## Not claimed"
    yield ""
    yield from (f"- {_cell(line)}" for line in certificate.not_claimed)


def _cell(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")
    return escaped.replace("<", "&lt;").replace("`", "\\`")
