"""Foreign subjects for tests of isolation: each does something to its process that a library must not."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from attnspec.certify.claims import Capabilities
from attnspec.certify.conventions.by_call import call_program
from attnspec.certify.conventions.program import Program
from attnspec.certify.observation import Observation
from attnspec.certify.subject import KnownDivergence
from attnspec.certify.subjects.numpy_reference import NumpyReference
from attnspec.pyspec import AttentionCall, Ledger


@dataclass(frozen=True)
class Foreign:
    """The numpy reference, until it is given two queries."""

    does: str = "nothing"
    name: str = "foreign"
    device: str = "cpu"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities()

    @property
    def known_divergences(self) -> tuple[KnownDivergence, ...]:
        if self.does != "wrong":
            return ()
        here = os.getpid()
        return (
            KnownDivergence(
                "off by one", "one is added", "F0", lambda call: call.axes.keys > 2 and os.getpid() == here
            ),
        )

    def identity(self) -> dict[str, str]:
        return {"process": str(os.getpid()), "does": self.does}

    def ledger(self, dtype: str) -> Ledger:
        return NumpyReference().ledger(dtype)

    def run(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Observation:
        if call.axes.queries >= 2:
            self._misbehave()
        seen = NumpyReference().run(call, raw)
        if self.does == "wrong":
            return replace(seen, tensors={n: t + 1.0 for n, t in seen.tensors.items()})
        return seen

    def program(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Program:
        return call_program(
            call, raw, f"Foreign({self.does!r})", imports=("from tests.certify.foreign import Foreign",)
        )

    def _misbehave(self) -> None:
        if self.does == "segfault":
            os.kill(os.getpid(), signal.SIGSEGV)
        if self.does == "floating point":
            os.kill(os.getpid(), signal.SIGFPE)
        if self.does == "exit":
            os._exit(7)
        if self.does == "sys.exit":
            sys.exit(3)
        if self.does == "hang":
            time.sleep(3600)
        if self.does == "raise":
            raise ValueError("from the kernel")
        if self.does == "print":
            print("noise on stdout", flush=True)


right = Foreign()
wrong = Foreign("wrong")
segfault = Foreign("segfault")
floating_point = Foreign("floating point")
exits = Foreign("exit")
system_exit = Foreign("sys.exit")
hang = Foreign("hang")
raises = Foreign("raise")
prints = Foreign("print")
