"""Subjects that show their stages, wrong from one stage on: each is the reference run on a call that says otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from attnspec.certify.claims import Capabilities
from attnspec.certify.conventions.by_call import call_program
from attnspec.certify.conventions.program import Program
from attnspec.certify.observation import Observation
from attnspec.certify.subjects.numpy_reference import NumpyReference
from attnspec.pyspec import AttentionCall, Ledger
from attnspec.strategies.derived import with_mask

Change = Callable[[AttentionCall], AttentionCall]

# The first stage at which each goes wrong, by the bug's name.
WRONG_FROM: dict[str, tuple[str, Change]] = {
    "query_doubled": ("dot", lambda call: call.but(query=2.0 * call.query)),
    "scale_twice": ("scaled", lambda call: call.but(scale=call.scale_value**2)),
    "softcap_lost": ("capped", lambda call: call.but(softcap=None)),
    "bias_lost": ("biased", lambda call: call if call.bias is None else call.but(bias=0.0 * call.bias)),
    "polarity_flipped": ("weights", lambda call: with_mask(call, ~call.visible)),
    "sink_lost": ("biased", lambda call: call.but(sink=None)),
    "dropout_lost": ("consumed", lambda call: call.but(dropout=None)),
    "values_negated": ("output", lambda call: call.but(value=-call.value)),
}


@dataclass(frozen=True)
class Staged:
    """One bug of WRONG_FROM, or none (""); `silent` ones show no stages."""

    bug: str = ""
    silent: bool = False
    device: str = "cpu"

    @property
    def name(self) -> str:
        return f"staged:{self.bug or 'right'}"

    @property
    def capabilities(self) -> Capabilities:
        return NumpyReference().capabilities

    def identity(self) -> dict[str, str]:
        return {"bug": self.bug}

    def ledger(self, dtype: str) -> Ledger:
        return NumpyReference().ledger(dtype)

    def _said(self, call: AttentionCall) -> AttentionCall:
        return WRONG_FROM[self.bug][1](call) if self.bug else call

    def run(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Observation:
        seen = NumpyReference().run(self._said(call), raw)
        if call.sink is None or "grad_sink" in seen.tensors or call.grad_output is None:
            return seen
        return replace(seen, tensors={**seen.tensors, "grad_sink": np.zeros(call.sink.shape)})

    def stages(self, call: AttentionCall) -> dict[str, np.ndarray] | None:
        if self.silent:
            return None
        found = NumpyReference().stages(self._said(call))
        if self.bug == "polarity_flipped":
            # Its scores are right: the reference computes none of keys that it takes for hidden.
            right = NumpyReference().stages(call)
            found |= {name: right[name] for name in ("dot", "scaled", "capped", "biased")}
        if call.sink is not None and self.bug == "sink_lost":
            # The column of a sink that it does not have reads zero.
            wide = (*call.score_shape[:3], call.axes.keys)
            found = {n: np.pad(a, (*[(0, 0)] * 3, (0, 1))) if a.shape == wide else a for n, a in found.items()}
        return found

    def program(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Program:
        return call_program(
            call,
            raw,
            f"Staged({self.bug!r}, {self.silent!r})",
            imports=("from tests.certify.planted_stages import Staged",),
        )


scale_twice = Staged("scale_twice")
right = Staged()
