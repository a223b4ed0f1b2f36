"""Running the command inside the test, in a folder of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from attnspec.certify.campaign.parts import Parts
from attnspec.certify.cli import main

Certify = Callable[..., Result]


@pytest.fixture
def certify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Certify:
    """`certify("run", "fake", parts=...)`: the command's result, run in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ATTNSPEC_DEBUG", raising=False)

    def invoke(*arguments: str, parts: Parts) -> Result:
        monkeypatch.setattr("attnspec.certify.campaign.parts.default_parts", lambda: parts)
        return CliRunner().invoke(main, [*arguments])

    return invoke
