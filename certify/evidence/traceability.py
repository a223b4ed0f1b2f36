"""Which claim rests on what: the table of properties and theorems, written into README.md and docs/TRUST.md.

python -m attnspec.certify.evidence.traceability --write      (without --write: exit 1 when a table is out of date)
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from attnspec.certify.trials import Property, registered

BEGIN, END = "<!-- properties:begin -->", "<!-- properties:end -->"
HEADLINES = Path("proofs/AttnProofs.lean")
DOCUMENTS = (Path("README.md"), Path("docs/TRUST.md"))

# Headline theorems that no single property tests: they speak of the assumptions, not of a kernel.
FOUNDATIONS = {
    "exponential_laws_consistent": "the laws assumed of exp have a model, so no theorem holds for want of one",
    "pade_tanh_matches_pade_exp": "the rational stand-in for tanh belongs to the one for exp",
    "pade_exp_positive": "the rational stand-in for exp in the vectors is positive, so visible rows have mass",
}


def headlines(root: Path) -> dict[str, str]:
    """Headline theorems of the Lean development and their sentences."""
    text = (root / HEADLINES).read_text(encoding="utf-8")
    found = re.findall(r"/-- (.*?) -/\ntheorem (\w+)", text, re.DOTALL)
    return {name: " ".join(sentence.split()) for sentence, name in found}


def standing(prop: Property) -> str:
    """What the property's claim about the spec stands on; that a kernel keeps it is always tested."""
    return "proved, mirrored by vectors" if prop.theorem is not None else "tested only"


def table() -> str:
    """The table of all properties in Markdown."""
    lines = ["| property | claim | rests on | standing |", "| --- | --- | --- | --- |"]
    for prop in registered().values():
        names = [n for n in (prop.theorem, *prop.also) if n is not None]
        rests = ", ".join(f"`{n}`" for n in names) or prop.basis
        lines.append(f"| `{prop.id}` | {prop.claim} | {rests} | {standing(prop)} |")
    return "\n".join(lines)


def with_table(text: str) -> str:
    """The document with its table replaced. A ValueError when the markers are missing."""
    if BEGIN not in text or END not in text:
        raise ValueError(f"the document has no {BEGIN} … {END}")
    head, rest = text.split(BEGIN, 1)
    return f"{head}{BEGIN}\n{table()}\n{END}{rest.split(END, 1)[1]}"


def main(arguments: list[str]) -> int:
    """Check the documents, or write them; 1 when one was out of date and nothing was written."""
    stale = []
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        fresh = with_table(text)
        if fresh != text:
            stale.append(document)
            if "--write" in arguments:
                document.write_text(fresh, encoding="utf-8")
    for document in stale:
        print(f"{document}: {'written' if '--write' in arguments else 'out of date: add --write'}")
    return 1 if stale and "--write" not in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
