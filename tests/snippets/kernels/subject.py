"""A Subject: what a function's signature cannot say, such as score families, given dropout and returned weights."""

from dataclasses import dataclass

import numpy as np

from attnspec.certify.conventions.by_call import loaded_program
from attnspec.certify.observation import Observation
from attnspec.certify.subjects.families import NumpyScores
from attnspec.certify.subjects.numpy_scores import attention, score, softmax_rows
from attnspec.pyspec.calls.formats import round_to


def drawn(call):
    """The dropout multiplier that the kernel draws for itself."""
    own = call.own_dropout
    keep = np.random.default_rng(own.seed).random(call.score_shape) >= own.probability
    return keep / (1.0 - own.probability)


def computed(call, given):
    """Every tensor of the call in float64."""
    return attention(call, given, draw=drawn, scores=score, normalise=softmax_rows)


@dataclass(frozen=True)
class Kernel:
    """Every score family in float64, rounded once at the end."""

    name: str = f"{__file__}:kernel"
    device: str = "cpu"

    @property
    def capabilities(self):
        return NumpyScores().capabilities

    def identity(self):
        return NumpyScores().identity()

    def ledger(self, dtype):
        return NumpyScores().ledger(dtype)

    def run(self, call, raw=None):
        given = {n: np.asarray((raw or {}).get(n, getattr(call, n))) for n in ("query", "key", "value")}
        try:
            with np.errstate(all="ignore"):
                found = computed(call, given)
        except ArithmeticError as error:
            return Observation(error=f"{type(error).__name__}: {error}")
        tensors = {n: t if n == "lse" else round_to(call.dtype, t) for n, t in found.items()}
        return Observation(tensors=tensors, dtypes=dict.fromkeys(tensors, call.dtype), changed_inputs=())

    def program(self, call, raw=None):
        return loaded_program(call, raw, self.name)


kernel = Kernel()
