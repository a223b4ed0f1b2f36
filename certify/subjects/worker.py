"""The child's side of isolation: serves one subject over a pipe until the pipe closes."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from multiprocessing.connection import Connection
from typing import Any

from attnspec.certify.errors import CertifyError, MissingDevice, OwnFault, UsageError
from attnspec.certify.subject import KnownDivergence
from attnspec.pyspec import AttentionCall

# Kinds of message, besides "ok", "error" and the names of ERRORS.
WORKER_STARTED = "worker started"
WORKER_ENDED = "worker ended"

ERRORS: dict[str, type[CertifyError]] = {e.__name__: e for e in (UsageError, MissingDevice, OwnFault)}


def ending(code: int | None) -> str:
    """How a process with that exit code (negative: a signal) came to its end."""
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            return f"died with {signal.Signals(-code).name}"
        return f"died with signal {-code}"
    return f"exited with code {code}"


def serve(pipe: Connection, spec: str, device: str, parent: int, forks: bool) -> None:
    """Load the subject, say what it is, and answer calls: in this process, or in a fork for each life of it."""
    # Ctrl-C reaches the whole group: only the parent decides. What the subject prints must not reach stdout, where
    # events may be going.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _die_with(parent)
    sys.stdout.flush()
    os.dup2(2, 1)
    try:
        from attnspec.certify.subjects import load_subject

        subject = load_subject(spec, device)
        about = {
            "name": subject.name,
            "capabilities": subject.capabilities,
            "identity": subject.identity(),
            "known": tuple((d.name, d.reason, d.finding) for d in _known(subject)),
        }
        pipe.send(("ok", about))
    except CertifyError as error:
        pipe.send((_error_kind(error), str(error)))
        return
    except BaseException as error:
        pipe.send(("UsageError", f"subject {spec!r} cannot be loaded: {type(error).__name__}: {error}"))
        return
    if forks:
        _fork_workers(pipe, subject)
    else:
        _answer_calls(pipe, subject)


def _fork_workers(pipe: Connection, subject: Any) -> None:
    """Keep one worker alive; say when it starts and how it ended. Only one of the two ever writes at a time."""
    me = os.getpid()
    with contextlib.suppress(OSError):
        while True:
            worker = os.fork()
            if worker == 0:
                _die_with(me)
                try:
                    _answer_calls(pipe, subject)
                except SystemExit as error:
                    os._exit(error.code if isinstance(error.code, int) else 1)
                finally:
                    os._exit(0)
            pipe.send((WORKER_STARTED, worker))
            _, status = os.waitpid(worker, 0)
            pipe.send((WORKER_ENDED, os.waitstatus_to_exitcode(status)))


def _answer_calls(pipe: Connection, subject: Any) -> None:
    while True:
        try:
            what, argument = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            pipe.send(("ok", _answer(subject, what, argument)))
        except CertifyError as error:
            pipe.send((_error_kind(error), str(error)))
        except Exception as error:
            pipe.send(("error", f"{type(error).__name__}: {error}"))


def _error_kind(error: CertifyError) -> str:
    return next((name for name, kind in ERRORS.items() if isinstance(error, kind)), "UsageError")


def _answer(subject: Any, what: str, argument: Any) -> Any:
    if what == "run":
        call, raw = argument
        return subject.run(_frozen(call), raw)
    if what == "meets":
        number, call = argument
        return _known(subject)[number].meets(_frozen(call))
    if what == "stages":
        method = getattr(subject, "stages", None)
        return None if method is None else method(_frozen(argument))
    if what == "program":
        call, raw = argument
        return subject.program(_frozen(call), raw)
    return subject.ledger(argument)


def _known(subject: Any) -> tuple[KnownDivergence, ...]:
    return getattr(subject, "known_divergences", ())


def _frozen(call: AttentionCall) -> AttentionCall:
    """The call as it was: pickling makes its arrays writeable."""
    return call.but()


def _die_with(parent: int) -> None:
    """Ask the kernel to end this process when the parent is killed outright (Linux only)."""
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))
        if os.getppid() != parent:
            os._exit(0)
