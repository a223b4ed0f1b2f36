"""Every divergence in docs/FINDINGS.md is still there, and the suite still finds it."""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest

from attnspec.certify.campaign.budget import cases_for, seed_for
from attnspec.certify.campaign.parts import default_parts
from attnspec.certify.campaign.search import check_case
from attnspec.certify.subjects import load_subject
from attnspec.certify.trials import Held, registered
from attnspec.pyspec.oracle.ledger import named_ledgers

torch = pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "FINDINGS.md"
RECORDED = "2.13"
MOST_CASES = 120


@dataclass(frozen=True)
class Finding:
    """An entry of the page: its number, title, commands, program and what that prints."""

    id: str
    title: str
    text: str
    program: str
    prints: str


def findings() -> list[Finding]:
    """The entries, in order."""
    found = []
    for section in re.split(r'(?=<a id="F\d+"></a>)', PAGE.read_text())[1:]:
        section = section.split("\n## Looked at")[0]
        head = re.search(r"^## (F\d+)\. (.+)$", section, re.M)
        program = re.search(r"```python\n(.*?)```", section, re.S)
        prints = re.search(r"```text\n(.*?)```", section, re.S)
        assert head, section[:60]
        assert program, head[1]
        assert prints, head[1]
        found.append(Finding(head[1], head[2], section, program[1], prints[1]))
    return found


FINDINGS = findings()
by_id = pytest.mark.parametrize("finding", FINDINGS, ids=lambda f: f.id)


def recorded_torch() -> None:
    """Skip on a torch that the page says nothing about."""
    if not torch.__version__.startswith(RECORDED):
        pytest.skip(f"recorded for torch {RECORDED}, this is {torch.__version__}")


@by_id
def test_snippet_still_diverges(finding: Finding) -> None:
    recorded_torch()
    printed = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(printed):
        warnings.simplefilter("ignore")
        exec(compile(finding.program, f"{PAGE.name}#{finding.id}", "exec"), {})
    assert printed.getvalue() == finding.prints, (
        f"{finding.id} ({finding.title}) no longer diverges as recorded on torch {torch.__version__}: "
        "remove it from docs/FINDINGS.md, or record what it prints now"
    )


@by_id
def test_entry_is_anchored_short_and_says_how_it_was_found(finding: Finding) -> None:
    assert f'<a id="{finding.id}"></a>' in finding.text
    assert f"[{finding.id}](#{finding.id})" in PAGE.read_text()
    assert len(finding.program.strip().splitlines()) <= 15
    assert "Found by `certify run " in finding.text.replace("\n", " ")
    assert "Known report:" in finding.text.replace("\n", " ")


def command_of(finding: Finding) -> dict[str, str]:
    """Options of the first command of an entry; `subject` is the positional one."""
    words = re.search(r"`certify run ([^`]+)`", finding.text.replace("\n", " "))
    assert words
    subject, *rest = words[1].split()
    return {"subject": subject, **{k.removeprefix("--"): v for k, v in zip(rest[::2], rest[1::2], strict=True)}}


@by_id
def test_the_suite_finds_it(finding: Finding, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded_torch()
    monkeypatch.chdir(ROOT)
    command = command_of(finding)
    prop, dtype = registered()[command["only"]], command["dtype"]
    subject = load_subject(command["subject"])
    ledger = command.get("ledger")
    held = Held(subject, (lambda d: named_ledgers(d)[ledger]) if ledger else subject.ledger)
    draw = default_parts().call_at
    seed = seed_for(0, prop.id, dtype)
    cases = cases_for(prop, "pr", int(command["examples"]) if "examples" in command else None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seen = (
            check_case(prop, held, lambda i: draw(seed, i, "pr", subject.capabilities, dtype, prop.small), index)
            for index in range(min(cases, MOST_CASES))
        )
        assert any(case.status == "refuted" for case in seen), f"{finding.id}: {command} refutes nothing"


def test_known_divergences_of_subjects_point_at_an_entry() -> None:
    anchors = {f"docs/FINDINGS.md#{f.id}" for f in FINDINGS}
    for kernel in ("math", "flash"):
        for known in load_subject(f"torch-sdpa:{kernel}").known_divergences:  # type: ignore[attr-defined]
            assert known.finding in anchors
