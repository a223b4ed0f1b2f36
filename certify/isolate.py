"""A subject in a child process: a crash, an exit or a hang refutes the subject and leaves the campaign alive."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import weakref
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from certify.errors import CertifyError, MissingDevice, OwnFault, UsageError
from certify.subject import Capabilities, Observation
from pyspec import AttentionCall, Ledger

CALL_TIMEOUT = 60.0
START_TIMEOUT = 300.0

_LIVE: weakref.WeakSet[IsolatedSubject] = weakref.WeakSet()


class IsolatedSubject:
    """A subject loaded and run in a spawned child; it has the interface of certify.subject.Subject.

    A call that kills the child gives an Observation whose error names the signal or exit code; one that does not
    answer within `timeout` seconds is killed. The next call gets a fresh child. Raises UsageError when the subject
    cannot be loaded, MissingDevice when its device is absent.
    """

    def __init__(self, spec: str, device: str = "cpu", *, timeout: float = CALL_TIMEOUT) -> None:
        self.spec = spec
        self.timeout = timeout
        self._device = device
        self._ledgers: dict[str, Ledger] = {}
        self._process: Any = None
        self._pipe: Connection | None = None
        _LIVE.add(self)
        about = self._start()
        self._name: str = about["name"]
        self._capabilities: Capabilities = about["capabilities"]
        self._identity: dict[str, str] = about["identity"]

    @property
    def name(self) -> str:
        """Name of the subject inside."""
        return self._name

    @property
    def device(self) -> str:
        """Device of the subject inside."""
        return self._device

    @property
    def capabilities(self) -> Capabilities:
        """What the subject inside claims to support."""
        return self._capabilities

    def identity(self) -> dict[str, str]:
        """What the subject inside says it is."""
        return dict(self._identity)

    def ledger(self, dtype: str) -> Ledger:
        """The ledger the subject inside declares; asked once."""
        if dtype not in self._ledgers:
            self._ledgers[dtype] = self._must("ledger", dtype)
        return self._ledgers[dtype]

    def snippet(self, call: AttentionCall) -> str:
        """The snippet of the subject inside."""
        return self._must("snippet", call)

    def run(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Observation:
        """Run the call in the child; never raises for what the subject does."""
        try:
            kind, answer = self._ask("run", (call, None if raw is None else dict(raw)))
        except _Died as death:
            return Observation(error=str(death))
        return answer if kind == "ok" else Observation(error=str(answer))

    def close(self) -> None:
        """End the child, whatever it is doing. The subject may be used again; a fresh child then starts."""
        process, pipe = self._process, self._pipe
        self._process = self._pipe = None
        if pipe is not None:
            pipe.close()
        if process is not None:
            process.kill()
            process.join()
            process.close()

    def _start(self) -> dict[str, Any]:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        # Daemonic: ended by multiprocessing at exit even if close() is never reached.
        process = context.Process(target=_child, args=(theirs, self.spec, self._device, os.getpid()), daemon=True)
        process.start()
        theirs.close()
        self._process, self._pipe = process, ours
        try:
            kind, about = self._receive(START_TIMEOUT)
        except _Died as death:
            raise UsageError(f"subject {self.spec!r} cannot be loaded: {death}") from None
        if kind != "ok":
            self.close()
            raise _ERRORS.get(kind, UsageError)(about)
        return about

    def _ask(self, what: str, argument: Any) -> tuple[str, Any]:
        if self._process is None:
            self._start()
        assert self._pipe is not None
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._pipe.send((what, argument))
        return self._receive(self.timeout)

    def _must(self, what: str, argument: Any) -> Any:
        try:
            kind, answer = self._ask(what, argument)
        except _Died as death:
            raise OwnFault(f"subject {self.spec!r} cannot say its {what}: {death}") from None
        if kind != "ok":
            raise _ERRORS.get(kind, OwnFault)(f"subject {self.spec!r} cannot say its {what}: {answer}")
        return answer

    def _receive(self, seconds: float) -> tuple[str, Any]:
        assert self._pipe is not None
        try:
            if not self._pipe.poll(seconds):
                self.close()
                raise _Died(f"no answer in {seconds:g} s")
            return self._pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            code = self._process.exitcode
            self.close()
            raise _Died(f"the process {_ending(code)}") from None
        except BaseException:
            # An interrupt in the middle of an exchange leaves an answer on its way: that child is of no more use.
            self.close()
            raise


class _Died(Exception):
    """The child ended or was ended; the text says how."""


_ERRORS: dict[str, type[CertifyError]] = {e.__name__: e for e in (UsageError, MissingDevice, OwnFault)}


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            return f"died with {signal.Signals(-code).name}"
        return f"died with signal {-code}"
    return f"exited with code {code}"


def _child(pipe: Connection, spec: str, device: str, parent: int) -> None:
    """Serve one subject until the pipe closes."""
    # Ctrl-C reaches the whole group: only the parent decides. What the subject prints must not reach stdout, where
    # events may be going.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _die_with(parent)
    sys.stdout.flush()
    os.dup2(2, 1)
    try:
        from certify.subjects import load_subject

        subject = load_subject(spec, device)
        about = {"name": subject.name, "capabilities": subject.capabilities, "identity": subject.identity()}
        pipe.send(("ok", about))
    except CertifyError as error:
        pipe.send((_error_kind(error), str(error)))
        return
    except BaseException as error:
        pipe.send(("UsageError", f"subject {spec!r} cannot be loaded: {type(error).__name__}: {error}"))
        return
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
    return next((name for name, kind in _ERRORS.items() if isinstance(error, kind)), "UsageError")


def _answer(subject: Any, what: str, argument: Any) -> Any:
    if what == "run":
        call, raw = argument
        return subject.run(_frozen(call), raw)
    return subject.snippet(_frozen(argument)) if what == "snippet" else subject.ledger(argument)


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


def close_all() -> None:
    """End every child that is still there."""
    for subject in list(_LIVE):
        subject.close()


atexit.register(close_all)
