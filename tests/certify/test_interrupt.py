"""Ctrl-C: what was found so far is written, the exit code is 130, and no process stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from attnspec.certify.evidence.certificate import read_certificate
from attnspec.certify.observation import Observation
from attnspec.pyspec import AttentionCall
from tests.certify import fakes
from tests.certify.conftest import Certify
from tests.certify.fakes import Fake, parts

ROOT = Path(__file__).parents[2]

# A process started in the background of a shell begins with the signal ignored, and hands that on.
PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
import attnspec.certify.campaign.parts as parts
from tests.certify import fakes
real = parts.default_parts()
world = fakes.replace(fakes.parts(), load=real.load, foreign=real.foreign, fresh=real.fresh)
parts.default_parts = lambda: world
from attnspec.certify.cli import main
main(["run", "tests.certify.foreign:hang", "--dtype", "float32", "--out", sys.argv[1]])
"""


def children_of(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            if int(stat.rpartition(")")[2].split()[1]) == pid:
                found.append(int(entry.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds child processes through /proc")
def test_ctrl_c_while_a_subject_hangs(tmp_path: Path) -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    events = tmp_path / "events.jsonl"
    limit = time.monotonic() + 60
    while time.monotonic() < limit and not (events.exists() and "pair-started" in events.read_text()):
        time.sleep(0.1)
    time.sleep(1.0)
    children = children_of(run.pid)
    os.killpg(run.pid, signal.SIGINT)
    try:
        output, _ = run.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        run.communicate()
        raise
    assert run.returncode == 130, output
    assert output.rstrip().endswith("exit=130"), output
    assert "interrupted" in output
    certificate = read_certificate(tmp_path)
    assert certificate.verdict == "INCOMPLETE"
    assert {row.id for row in certificate.properties} == {"output", "calm"}
    assert {row.state for row in certificate.properties} == {"unfinished"}
    assert children, "the subject had no process of its own"
    # multiprocessing's own helper ends by itself once its parent is gone.
    limit = time.monotonic() + 10
    while time.monotonic() < limit and any(Path(f"/proc/{pid}").exists() for pid in children):
        time.sleep(0.05)
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]


def test_what_was_refuted_before_the_interrupt_is_kept(certify: Certify, tmp_path: Path) -> None:
    def interrupted(call: AttentionCall, seen: Observation) -> Observation:
        if interrupted.calls > 3:  # type: ignore[attr-defined]
            raise KeyboardInterrupt
        interrupted.calls += 1  # type: ignore[attr-defined]
        return fakes.raising(call, seen)

    interrupted.calls = 0  # type: ignore[attr-defined]
    result = certify("run", "fake", "--dtype", "float32", parts=parts(Fake(change=interrupted)))
    assert result.exit_code == 130, result.output
    certificate = read_certificate(tmp_path / "cert/fake")
    assert [(row.id, row.state) for row in certificate.properties] == [("output", "refuted"), ("calm", "unfinished")]
    assert certificate.verdict == "REFUTED"
    example = certificate.properties[0].counterexample
    assert (tmp_path / f"cert/fake/counterexamples/{example}.json").is_file()
