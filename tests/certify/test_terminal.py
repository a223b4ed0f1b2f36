"""The terminal where someone watches: progress while it runs, the table at the end, no colour when told so."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from attnspec.certify.campaign.identify import Request, prepare
from attnspec.certify.campaign.phases import run_campaign
from attnspec.certify.evidence.events import event_json
from attnspec.certify.evidence.report.terminal import Terminal
from tests.certify import fakes
from tests.certify.fakes import Fake, parts


def shown(tmp_path: Path, fake: Fake, **console: object) -> str:
    stream = io.StringIO()
    screen = Terminal(Console(file=stream, width=120, **console))  # type: ignore[arg-type]
    world = parts(fake, properties=(fakes.OUTPUT, fakes.CALM, fakes.OUTSIDE))
    request = Request("fake", tmp_path / "out", dtypes=("float32", "float64"), examples=3)
    run_campaign(prepare(request, world), screen, world)
    screen.stop()
    return stream.getvalue()


def test_a_watched_run_ends_with_the_table(tmp_path: Path) -> None:
    text = shown(tmp_path, Fake(), force_terminal=True, no_color=True)
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).splitlines()
    table = next(i for i, line in enumerate(lines) if line.startswith("claim  "))
    rows = {line.split()[0]: line for line in lines[table:] if line.strip()}
    assert rows["output"].count("H held") == 2
    assert rows["outside"].count("C not covered") == 2
    assert lines[-1] == "VERDICT CERTIFIED fake exit=0"


def test_a_piped_run_has_a_line_for_each_claim_and_no_escapes(tmp_path: Path) -> None:
    text = shown(tmp_path, Fake(change=fakes.raising))
    assert "\x1b" not in text
    for name in ("output", "calm"):
        for dtype in ("float32", "float64"):
            assert f"  R {name} ({dtype})  1 cases" in text
    # One bug is shown once, and the rest by name.
    assert text.count("snippet") == 1
    assert text.count("certify replay") == 4


def test_no_color_is_honoured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b[1;31m" not in shown(tmp_path, Fake(change=fakes.raising), force_terminal=True)
    monkeypatch.delenv("NO_COLOR")
    assert "\x1b[1;31m" in shown(tmp_path, Fake(change=fakes.raising), force_terminal=True)


def test_every_event_is_one_line_of_json(tmp_path: Path) -> None:
    lines: list[str] = []
    world = parts(Fake(change=fakes.doubled_when_two_keys))
    request = Request("fake", tmp_path / "out", dtypes=("float32",), examples=20)
    run_campaign(prepare(request, world), lambda event: lines.append(event_json(event)), world)
    assert all("\n" not in line for line in lines)
    kinds = [line.split('"')[3] for line in lines]
    assert kinds[0] == "phase-started"
    assert kinds[-1] == "verdict-reached"
    assert {"pair-started", "case-checked", "reducing", "pair-finished", "counter-example-found"} <= set(kinds)
