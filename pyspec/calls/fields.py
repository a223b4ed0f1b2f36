"""The fields of a call and what follows from them, not yet checked: `AttentionCall` is the checked call."""

from __future__ import annotations

from dataclasses import astuple, dataclass, field

import numpy as np

from attnspec.pyspec.calls.score import Dot, Family
from attnspec.pyspec.scale import default_scale

EMPTY_ROW_POLICIES = ("zero", "reject", "sanitize_then_zero_invalid_query", "tested_backend_contract")
RETURNED_WEIGHTS = ("none", "before_dropout", "after_dropout")
MASK_ENCODINGS = ("none", "bool", "additive", "causal_flag")
LAYOUTS = ("contiguous", "heads_last", "padded", "offset", "transposed")
MASK_LAYOUTS = ("contiguous", "expanded", "transposed", "padded")


@dataclass(frozen=True)
class Axes:
    """Sizes of a call: batch, query and key/value heads, query and key lengths, key and value widths."""

    batch: int
    query_heads: int
    key_heads: int
    queries: int
    keys: int
    key_width: int
    value_width: int

    @property
    def any_zero(self) -> bool:
        """Is one of the sizes zero?"""
        return 0 in astuple(self)


@dataclass(frozen=True, eq=False)
class Visibility:
    """Which query may attend to which key.

    `mask` is boolean, True means visible, four axes broadcastable to [B, Hq, Q, K]. `query_valid` [B, Q]
    marks real queries (None: all); an invalid query sees nothing. `empty_rows` says which rows may be empty:
    under "zero" any, with zero weights, output and gradients, and LSE -inf; under "reject" none; under
    "sanitize_then_zero_invalid_query" those of invalid queries, with the same zeros; under
    "tested_backend_contract" any, with what the named backend was tested to do. See pyspec.calls.masks.policies.
    """

    mask: np.ndarray
    query_valid: np.ndarray | None = None
    empty_rows: str = "zero"


@dataclass(frozen=True, eq=False)
class Dropout:
    """Dropout as data: the realised multiplier, keep / (1 - probability), broadcastable to [B, Hq, Q, K].

    It multiplies the weights after the softmax. `returned_weights` says what a weight-returning subject
    returns ("none", "before_dropout", "after_dropout").
    """

    probability: float
    multiplier: np.ndarray
    training: bool = True
    returned_weights: str = "none"


@dataclass(frozen=True)
class OwnDropout:
    """Dropout that the subject draws by itself, with this probability, from a generator seeded with `seed`."""

    probability: float
    seed: int


@dataclass(frozen=True)
class Layout:
    """Memory layouts in which a subject is handed its tensors; the values do not depend on them."""

    query: str = "contiguous"
    key: str = "contiguous"
    value: str = "contiguous"
    mask: str = "contiguous"


@dataclass(frozen=True)
class Backend:
    """What was asked to run and what was seen to run; "unobserved" is never replaced by a guess."""

    requested: str = "unspecified"
    observed: str = "unobserved"
    materialised_weights: str = "unobserved"


@dataclass(frozen=True, eq=False)
class CallFields:
    """What a call says; `attnspec.pyspec.calls.features` has a row for every part of it.

    query [B,Hq,Q,Dk], key [B,Hkv,K,Dk], value [B,Hkv,K,Dv] and grad_output [B,Hq,Q,Dv] are float64 arrays
    whose every entry is a finite value of `dtype`; bias is finite, four axes broadcastable to [B,Hq,Q,K].
    scale multiplies query · key (None: key_width ** -0.5). `head_map[h]` is the key/value head of query head h.
    softcap c > 0 caps scores to c tanh(scaled / c) before the bias is added; sink [Hq], values of `dtype`, is an extra
    logit per query head that takes mass and carries no value (attnspec.pyspec.sink). slopes [Hq], values of `dtype`,
    times the distance of query and key are subtracted from the scores (attnspec.pyspec.alibi). None: none of these.
    `score` is the score family with its parameters (attnspec.pyspec.calls.score), a dot product by default.
    `own_dropout` asks the subject to draw dropout by itself, in place of the given multiplier in `dropout`.
    Every length may be zero and all are independent. `encoding` says how the visibility is passed to a subject.
    `backend` and `origin` are labels: they change no result.
    """

    query: np.ndarray
    key: np.ndarray
    value: np.ndarray
    dtype: str
    visibility: Visibility
    head_map: tuple[int, ...]
    bias: np.ndarray | None = None
    scale: float | None = None
    dropout: Dropout | None = None
    grad_output: np.ndarray | None = None
    encoding: str = "bool"
    layout: Layout = field(default_factory=Layout)
    backend: Backend = field(default_factory=Backend)
    origin: dict[str, str] = field(default_factory=dict)
    softcap: float | None = None
    sink: np.ndarray | None = None
    score: Family = field(default_factory=Dot)
    own_dropout: OwnDropout | None = None
    slopes: np.ndarray | None = None

    @property
    def axes(self) -> Axes:
        """The call's sizes."""
        b, hq, q, dk = self.query.shape
        _, hkv, k, _ = self.key.shape
        return Axes(b, hq, hkv, q, k, dk, self.value.shape[-1])

    @property
    def score_shape(self) -> tuple[int, int, int, int]:
        """[B, Hq, Q, K]."""
        a = self.axes
        return (a.batch, a.query_heads, a.queries, a.keys)

    @property
    def scale_value(self) -> float:
        """The multiplier in force, as the float64 nearest to its definition (1 when there is no width)."""
        return default_scale(self.query.shape[-1]) if self.scale is None else self.scale

    @property
    def visible(self) -> np.ndarray:
        """Effective visibility [B, Hq, Q, K]: the mask, and no key for an invalid query."""
        mask = np.broadcast_to(self.visibility.mask, self.score_shape)
        if self.visibility.query_valid is None:
            return mask
        return mask & self.visibility.query_valid[:, None, :, None]

    @property
    def multiplier(self) -> np.ndarray | None:
        """Realised dropout multiplier in force [B, Hq, Q, K], or None where dropout is off."""
        if self.dropout is None or not self.dropout.training:
            return None
        return np.broadcast_to(self.dropout.multiplier, self.score_shape)
