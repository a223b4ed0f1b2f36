"""Campaigns on planted bugs, as a user starts them, and the snippets that they write, run as a user runs them."""

from __future__ import annotations

import io
import os
import re
import runpy
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

from click.testing import CliRunner, Result

import attnspec
from attnspec.certify.campaign.parts import default_parts
from attnspec.certify.cli import main
from attnspec.certify.evidence.certificate import ProofRecord, SelfCheckRecord
from attnspec.certify.evidence.counterexample import CounterExample, read_counterexample
from attnspec.pyspec import AttentionCall
from attnspec.strategies import reduce_call
from tests.snippets.planted import Planted, mend

# Tries that making a call smaller may take here: what is tested is that the record is the run, small or not.
TRIES = 24

_PROOFS = ProofRecord(
    compiled="not here", toolchain=None, digests={}, vectors="none here", agrees=None, theorems=[], detail="not here"
)
_CHECKED = SelfCheckRecord(passed=True, caught=["a bug"], missed=[], lines=[])


@dataclass(frozen=True)
class Ran:
    """A campaign on a planted bug: the folder it ran in, and the counter-examples that it wrote, by property."""

    planted: Planted
    folder: Path
    result: Result
    records: Mapping[str, CounterExample]

    def snippet(self, prop_id: str) -> Path:
        """The file that the counter-example to a property was written to as a program."""
        (found,) = self.folder.glob(f"cert/*/counterexamples/{self.records[prop_id].id}.py")
        return found

    @contextmanager
    def mended(self) -> Iterator[None]:
        """The right kernel in the place of the wrong one."""
        mend(self.folder)
        try:
            yield
        finally:
            self.planted.write(self.folder)


def campaign(planted: Planted, folder: Path) -> Ran:
    """`certify run FILE:NAME --only ID ...` in that folder, on the kernel written there with its bug."""
    planted.write(folder)
    only = [word for prop_id in planted.refuted_by for word in ("--only", prop_id)]
    options = ("--dtype", planted.dtype, "--profile", "smoke", "--examples", "40")
    isolated = ("--isolate", "--call-timeout", str(planted.call_timeout)) if planted.isolated else ("--no-isolate",)
    result = certify(folder, "run", planted.kernel, *only, *options, *isolated, isolated=planted.isolated)
    records = [read_counterexample(file) for file in folder.glob("cert/*/counterexamples/*.json")]
    return Ran(planted, folder, result, {record.property: record for record in records})


def certify(folder: Path, *arguments: str, isolated: bool = False) -> Result:
    """The command, run in that folder; nothing of the self-check and of the proofs, which are tested elsewhere."""
    real = default_parts()
    parts = replace(
        real,
        foreign=lambda spec: isolated,
        # The audit's fresh process is a module loaded anew, where nothing is isolated.
        fresh=real.fresh if isolated else lambda spec, device, timeout: real.load(spec, device),
        reduce=_reduced,
        self_check=lambda profile, seed: _CHECKED,
        proofs=lambda: _PROOFS,
    )
    with (
        chdir(folder),
        mock.patch("attnspec.certify.campaign.parts.default_parts", return_value=parts),
        mock.patch.object(sys, "path", [*sys.path]),
        # A kernel mended in the second it was written in would be taken for what was compiled before.
        mock.patch.object(sys, "dont_write_bytecode", True),
    ):
        return CliRunner().invoke(main, [*arguments])


def _reduced(call: AttentionCall, fails: Callable[[AttentionCall], bool], budget: int) -> AttentionCall:
    return reduce_call(call, fails, min(budget, TRIES))


def python(folder: Path, *arguments: str | Path, timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter in that folder, which knows nothing but what is installed; -9 where it does not answer."""
    installed = str(Path(attnspec.__file__).parents[1])
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-W", "error", "-X", "utf8", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": installed, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        return subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, -9, "", f"no answer in {timeout} s")


def here(folder: Path, file: Path) -> subprocess.CompletedProcess[str]:
    """The same in this interpreter, as a module of its own: quicker, where a fresh one has run the file already."""
    printed, said, code = io.StringIO(), "", 0
    with chdir(folder), redirect_stdout(printed):
        try:
            runpy.run_path(str(file), run_name="__main__")
        except Exception:
            said, code = traceback.format_exc(), 1
    return subprocess.CompletedProcess([str(file)], code, printed.getvalue(), said)


def printed_number(text: str) -> tuple[str, float]:
    """What a snippet printed: the entry of a tensor, and the number that came."""
    found = re.search(r"^(.+) = (\S+), exact ", text, re.MULTILINE)
    assert found is not None, text
    return found[1], float(found[2])
