"""Isolation: whatever a subject does to its process refutes it, and the campaign goes on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from attnspec.certify.campaign.parts import default_parts
from attnspec.certify.claims import Skip
from attnspec.certify.errors import UsageError
from attnspec.certify.subject import uncovered
from attnspec.certify.subjects.isolate import IsolatedSubject
from attnspec.pyspec import AttentionCall, make_call
from tests.certify import fakes
from tests.certify.conftest import Certify

MODULE = "tests.certify.foreign"


def call_of(queries: int) -> AttentionCall:
    return make_call(np.ones((1, 1, queries, 1)), np.ones((1, 1, 3, 1)), np.arange(3.0).reshape(1, 1, 3, 1))


@contextmanager
def isolated(attribute: str, timeout: float = 60.0) -> Iterator[IsolatedSubject]:
    subject = IsolatedSubject(f"{MODULE}:{attribute}", timeout=timeout)
    try:
        yield subject
    finally:
        subject.close()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_it_is_the_subject_inside_in_another_process() -> None:
    with isolated("right") as subject:
        process = int(subject.identity()["process"])
        assert process != os.getpid()
        assert subject.name == "foreign"
        assert subject.capabilities.devices == ("cpu",)
        assert subject.ledger("float32").name == "float64-inside"
        program = subject.program(call_of(1), {"key": np.full((1, 1, 3, 1), np.nan)})
        assert "subject = Foreign('nothing')\n" in program.source()
        assert "seen = subject.run(call, raw)\n" in program.source()
        seen = subject.run(call_of(2))
        assert seen.error is None
        np.testing.assert_array_equal(seen.tensors["output"], np.ones((1, 1, 2, 1)))
    assert not alive(process)


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        ("segfault", "the process died with SIGSEGV"),
        ("floating_point", "the process died with SIGFPE"),
        ("exits", "the process exited with code 7"),
        ("system_exit", "the process exited with code 3"),
        ("raises", "ValueError: from the kernel"),
    ],
)
def test_an_end_is_an_observation_and_the_next_call_is_answered(attribute: str, expected: str) -> None:
    with isolated(attribute) as subject:
        assert subject.run(call_of(2)).error == expected
        assert subject.run(call_of(1)).error is None


def test_a_hang_is_ended_and_named() -> None:
    with isolated("hang", timeout=0.5) as subject:
        process = int(subject.identity()["process"])
        start = time.monotonic()
        assert subject.run(call_of(2)).error == "no answer in 0.5 s"
        assert time.monotonic() - start < 30
        assert not alive(process)


def test_known_divergences_are_asked_of_the_subject_inside() -> None:
    with isolated("wrong") as subject:
        text = "known divergence off by one: one is added (F0)"
        assert uncovered(subject, call_of(1)) == Skip("known_divergence", "off by one", text)
        few = make_call(np.ones((1, 1, 1, 1)), np.ones((1, 1, 2, 1)), np.ones((1, 1, 2, 1)))
        assert uncovered(subject, few) is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_forked_lives_are_short_to_start_and_tell_the_same() -> None:
    subject = IsolatedSubject(f"{MODULE}:segfault", forks=True)
    try:
        start = time.monotonic()
        for _ in range(20):
            assert subject.run(call_of(2)).error == "the process died with SIGSEGV"
            assert subject.run(call_of(1)).error is None
        assert time.monotonic() - start < 20
    finally:
        subject.close()
    with isolated("hang", timeout=0.5) as plain:
        plain._forks = True
        plain.close()
        assert plain.run(call_of(2)).error == "no answer in 0.5 s"
        assert plain.run(call_of(1)).error is None
        worker = plain._worker
        assert worker is not None
    limit = time.monotonic() + 10
    while time.monotonic() < limit and alive(worker):
        time.sleep(0.02)
    assert not alive(worker)


def test_poison_reaches_the_child() -> None:
    with isolated("right") as subject:
        seen = subject.run(call_of(1), {"value": np.full((1, 1, 3, 1), np.inf)})
        assert np.isinf(seen.tensors["output"]).all()


def test_a_module_that_kills_its_process_while_loading(tmp_path: Path) -> None:
    (tmp_path / "deadly.py").write_text("import os\nos.abort()\n")
    with pytest.raises(UsageError, match="cannot be loaded: the process died with SIGABRT"):
        IsolatedSubject(f"{tmp_path / 'deadly.py'}:attention")


def test_a_module_that_does_not_import(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text("import no_such_library\n")
    with pytest.raises(UsageError, match="No module named 'no_such_library'"):
        IsolatedSubject(f"{tmp_path / 'wrong.py'}:attention")


def test_a_crash_refutes_is_reduced_and_the_campaign_goes_on(certify: Certify) -> None:
    real = default_parts()
    world = fakes.parts()
    world = fakes.replace(world, load=real.load, foreign=real.foreign, fresh=real.fresh)
    result = certify(
        "run", f"{MODULE}:segfault", "--dtype", "float32", "--profile", "smoke", "--examples", "12", parts=world
    )
    assert result.exit_code == 1, result.output
    assert "got      the process died with SIGSEGV" in result.output
    assert "queries 2, keys 1, widths 1/1" in result.output
    assert "refuted output (float32), calm (float32)" in result.output


def test_what_a_subject_prints_stays_out_of_the_events(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "import attnspec.certify.campaign.parts as parts\n"
        "from tests.certify import fakes\n"
        "real = parts.default_parts()\n"
        "world = fakes.replace(fakes.parts(), load=real.load, foreign=real.foreign, fresh=real.fresh)\n"
        "parts.default_parts = lambda: world\n"
        "from attnspec.certify.cli import main\n"
        f"main(['run', '{MODULE}:prints', '--dtype', 'float32', '--examples', '9', '--json', *sys.argv[1:]])\n"
    )
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", code, "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "noise on stdout" not in done.stdout
    assert "noise on stdout" in done.stderr
