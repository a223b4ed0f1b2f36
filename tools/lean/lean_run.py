"""Runs the fallback Lean on one file under a time limit and reads its messages."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tools.lean.toolchain import WasmLean

_HEAD = re.compile(
    r"^(?P<file>[^\s:][^:]*):(?P<line>\d+):(?P<column>\d+): (?P<severity>error|warning|info)(?P<rest>.*)$"
)


@dataclass(frozen=True)
class Message:
    """One message of Lean: severity (error, warning, info), file, line from 1, column from 0, text."""

    severity: str
    file: str
    line: int
    column: int
    text: str


@dataclass(frozen=True)
class Result:
    """What a run gave: its messages, the text outside any message, exit status, and whether it ran out of time."""

    messages: tuple[Message, ...]
    output: str
    status: int
    timed_out: bool


def run(lean: WasmLean, file: Path, timeout: float) -> Result:
    """Elaborates a file. The whole process group dies when the time is up."""
    tops = {"/" + Path(p).resolve().parts[1] for p in (file, lean.root, os.environ.get("TMPDIR", "/tmp"))}
    env = {
        "PATH": os.environ.get("PATH", ""),
        "HOME": str(Path.home()),
        "LEAN_PATH": str(lean.root.resolve() / "lib" / "lean"),
        "ATTNSPEC_LEAN_MOUNTS": ":".join(sorted(tops)),
    }
    command = [str(lean.node), "--no-warnings", str(lean.script), str(file)]
    # A file and not a pipe: a full pipe is an input/output error to this Lean.
    with tempfile.TemporaryFile() as sink:
        process = subprocess.Popen(
            command,
            cwd=file.parent,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
        )
        timed_out = False
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            _end(process)
        sink.seek(0)
        raw = sink.read()
    text = "\n".join(line for line in raw.decode(errors="replace").splitlines() if not line.startswith("[DEBUG:"))
    messages, rest = parse(text)
    return Result(messages, rest, process.returncode, timed_out)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the process and all its children, if it still runs, and collects it."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def parse(text: str) -> tuple[tuple[Message, ...], str]:
    """Splits Lean's output into messages and the rest. A message runs to the next head."""
    messages: list[Message] = []
    rest: list[str] = []
    for line in text.splitlines():
        head = _HEAD.match(line)
        if head:
            body = head["rest"]
            # `error(lean.unknownIdentifier): text` or `error: text`.
            body = body.split(": ", 1)[1] if ": " in body else body.lstrip(": ")
            messages.append(Message(head["severity"], head["file"], int(head["line"]), int(head["column"]), body))
        elif messages:
            last = messages[-1]
            messages[-1] = Message(last.severity, last.file, last.line, last.column, f"{last.text}\n{line}")
        else:
            rest.append(line)
    return tuple(messages), "\n".join(rest)
