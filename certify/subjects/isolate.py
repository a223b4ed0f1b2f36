"""A subject in a child process: a crash, an exit or a hang refutes the subject and leaves the campaign alive."""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import signal
import weakref
from collections.abc import Mapping
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from attnspec.certify.claims import Capabilities
from attnspec.certify.conventions.program import Program
from attnspec.certify.errors import OwnFault, UsageError
from attnspec.certify.observation import Observation
from attnspec.certify.subject import KnownDivergence
from attnspec.certify.subjects.worker import ERRORS, WORKER_ENDED, ending, serve
from attnspec.pyspec import AttentionCall, Ledger

CALL_TIMEOUT = 60.0
START_TIMEOUT = 300.0

_SAYS = {
    "ledger": "what its ledger is",
    "program": "how a call is written",
    "meets": "whether a call meets a known divergence",
}

_LIVE: weakref.WeakSet[IsolatedSubject] = weakref.WeakSet()


class IsolatedSubject:
    """A subject loaded and run in a spawned child; it has the interface of attnspec.certify.subject.Subject.

    A call that kills the child gives an Observation whose error names the signal or exit code; one that does not
    answer within `timeout` seconds is killed. The next call gets a fresh child. Raises UsageError when the subject
    cannot be loaded, MissingDevice when its device is absent.

    `forks`: the child forks a worker for each life instead of starting over, which takes milliseconds. Threads that
    the subject's module started while loading are lost in a fork, so that what such a worker does is a hint to be
    confirmed without it. Only on the CPU, and where the system can fork.
    """

    def __init__(self, spec: str, device: str = "cpu", *, timeout: float = CALL_TIMEOUT, forks: bool = False) -> None:
        self.spec = spec
        self.timeout = timeout
        self._forks = forks and device == "cpu" and hasattr(os, "fork")
        self._worker: int | None = None
        self._device = device
        self._ledgers: dict[str, Ledger] = {}
        self._process: Any = None
        self._pipe: Connection | None = None
        _LIVE.add(self)
        about = self._start()
        self._name: str = about["name"]
        self._capabilities: Capabilities = about["capabilities"]
        self._identity: dict[str, str] = about["identity"]
        self._known: tuple[tuple[str, str, str], ...] = about["known"]

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

    @property
    def known_divergences(self) -> tuple[KnownDivergence, ...]:
        """What the subject inside lists; whether a call meets one is asked of it there."""
        return tuple(
            KnownDivergence(*words, meets=partial(self._meets, number)) for number, words in enumerate(self._known)
        )

    def _meets(self, number: int, call: AttentionCall) -> bool:
        return bool(self._must("meets", (number, call)))

    def identity(self) -> dict[str, str]:
        """What the subject inside says it is."""
        return dict(self._identity)

    def ledger(self, dtype: str) -> Ledger:
        """The ledger the subject inside declares; asked once."""
        if dtype not in self._ledgers:
            self._ledgers[dtype] = self._must("ledger", dtype)
        return self._ledgers[dtype]

    def stages(self, call: AttentionCall) -> dict[str, np.ndarray] | None:
        """The stages that the subject inside shows (attnspec.certify.campaign.explain), or None when it shows none."""
        found: dict[str, np.ndarray] | None = self._must("stages", call)
        return found

    def program(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Program:
        """The program of the subject inside."""
        found: Program = self._must("program", (call, None if raw is None else dict(raw)))
        return found

    def run(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Observation:
        """Run the call in the child; never raises for what the subject does."""
        try:
            kind, answer = self._ask("run", (call, None if raw is None else dict(raw)))
        except _Died as death:
            return Observation(error=str(death), ending="timeout" if death.hanging else "died")
        return answer if kind == "ok" else Observation(error=str(answer))

    def close(self) -> None:
        """End the child, whatever it is doing. The subject may be used again; a fresh child then starts."""
        process, pipe = self._process, self._pipe
        self._process = self._pipe = None
        self._end_worker()
        if pipe is not None:
            pipe.close()
        if process is not None:
            process.kill()
            process.join()
            process.close()

    def _start(self) -> dict[str, Any]:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        arguments = (theirs, self.spec, self._device, os.getpid(), self._forks)
        # Daemonic: ended by multiprocessing at exit even if close() is never reached.
        process = context.Process(target=serve, args=arguments, daemon=True)
        process.start()
        theirs.close()
        self._process, self._pipe = process, ours
        try:
            kind, about = self._receive(START_TIMEOUT)
        except _Died as death:
            raise UsageError(f"subject {self.spec!r} cannot be loaded: {death}") from None
        if kind != "ok":
            self.close()
            raise ERRORS.get(kind, UsageError)(about)
        return about

    def _ask(self, what: str, argument: Any) -> tuple[str, Any]:
        if self._process is None:
            self._start()
        assert self._pipe is not None
        if self._forks and self._worker is None:
            self._worker = self._receive(START_TIMEOUT)[1]
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._pipe.send((what, argument))
        return self._receive(self.timeout)

    def _must(self, what: str, argument: Any) -> Any:
        try:
            kind, answer = self._ask(what, argument)
        except _Died as death:
            raise OwnFault(f"subject {self.spec!r} cannot say {_SAYS[what]}: {death}") from None
        if kind != "ok":
            raise ERRORS.get(kind, OwnFault)(f"subject {self.spec!r} cannot say {_SAYS[what]}: {answer}")
        return answer

    def _receive(self, seconds: float) -> tuple[str, Any]:
        assert self._pipe is not None
        try:
            message = self._pipe.recv() if self._pipe.poll(seconds) else None
        except (EOFError, OSError):
            self._process.join()
            code = self._process.exitcode
            self.close()
            raise _Died(f"the process {ending(code)}") from None
        except BaseException:
            # An interrupt in the middle of an exchange leaves an answer on its way: that child is of no more use.
            self.close()
            raise
        if message is None:
            self._end_hanging()
            raise _Died(f"no answer in {seconds:g} s", hanging=True)
        kind, answer = message
        if kind == WORKER_ENDED:
            self._worker = None
            raise _Died(f"the process {ending(answer)}")
        return kind, answer

    def _end_hanging(self) -> None:
        if self._worker is None:
            self.close()
            return
        self._end_worker()
        assert self._pipe is not None
        # The one that forks tells of the end that was just made.
        if self._pipe.poll(START_TIMEOUT):
            self._pipe.recv()

    def _end_worker(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)


class _Died(Exception):
    """The child ended or was ended; the text says how. `hanging`: because it did not answer."""

    def __init__(self, text: str, hanging: bool = False) -> None:
        super().__init__(text)
        self.hanging = hanging


def close_all() -> None:
    """End every child that is still there."""
    for subject in list(_LIVE):
        subject.close()


atexit.register(close_all)
