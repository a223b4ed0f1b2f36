"""`AttentionCall`: one attention call as immutable, validated data."""

from __future__ import annotations

from dataclasses import astuple, dataclass, field, replace
from typing import Any

import numpy as np

from attnspec.pyspec.calls.errors import CallError
from attnspec.pyspec.calls.formats import get_format, is_representable
from attnspec.pyspec.calls.score import Dot, Family
from attnspec.pyspec.scale import default_scale

EMPTY_ROW_POLICIES = ("zero", "reject", "sanitize_then_zero_invalid_query", "tested_backend_contract")
SCALE_PLACEMENTS = ("on_query", "on_key", "split", "on_scores")
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


@dataclass(frozen=True)
class Scale:
    """The multiplier of query·key (None: key_width ** -0.5) and where the spec applies it."""

    value: float | None = None
    placement: str = "on_scores"


@dataclass(frozen=True, eq=False)
class Dropout:
    """Dropout as data: the realised multiplier, keep / (1 - probability), broadcastable to [B, Hq, Q, K].

    `location` is always after the normaliser; `returned_weights` says what a weight-returning subject
    returns ("none", "before_dropout", "after_dropout").
    """

    probability: float
    multiplier: np.ndarray
    training: bool = True
    location: str = "after_softmax"
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


def _frozen(array: Any) -> Any:
    """A read-only array: the given one when it is, else a copy, so that the caller's stays writeable."""
    if array is None or not array.flags.writeable:
        return array
    copy = np.array(array, order="C")
    copy.flags.writeable = False
    return copy


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """One attention call.

    query [B,Hq,Q,Dk], key [B,Hkv,K,Dk], value [B,Hkv,K,Dv] and grad_output [B,Hq,Q,Dv] are float64 arrays
    whose every entry is a finite value of `dtype`; bias is finite, four axes broadcastable to [B,Hq,Q,K].
    softcap c > 0 caps scores to c tanh(scaled / c) before the bias is added; sink [Hq], values of `dtype`, is an extra
    logit per query head that takes mass and carries no value (attnspec.pyspec.sink). None: neither.
    `score` is the score family with its parameters (attnspec.pyspec.calls.score), a dot product by default.
    `own_dropout` asks the subject to draw dropout by itself, in place of the given multiplier in `dropout`.
    Every length may be zero and all are independent. `head_map[h]` is the key/value head of query head h.
    `encoding` says how a subject is told the visibility. `ledger` names the numerics a subject declared.
    Raises CallError naming the first broken field. Lean: AttnSpec.Inputs, AttnSpec.Params.
    """

    query: np.ndarray
    key: np.ndarray
    value: np.ndarray
    dtype: str
    visibility: Visibility
    head_map: tuple[int, ...]
    bias: np.ndarray | None = None
    scale: Scale = Scale()
    dropout: Dropout | None = None
    grad_output: np.ndarray | None = None
    encoding: str = "bool"
    layout: Layout = Layout()
    ledger: str | None = None
    backend: Backend = Backend()
    origin: dict[str, str] = field(default_factory=dict)
    softcap: float | None = None
    sink: np.ndarray | None = None
    score: Family = field(default_factory=Dot)
    own_dropout: OwnDropout | None = None

    def __post_init__(self) -> None:
        from attnspec.pyspec.calls.check import check

        check(self)
        for name in ("query", "key", "value", "bias", "grad_output", "sink"):
            object.__setattr__(self, name, _frozen(getattr(self, name)))
        seen, dropped = self.visibility, self.dropout
        frozen = replace(seen, mask=_frozen(seen.mask), query_valid=_frozen(seen.query_valid))
        object.__setattr__(self, "visibility", frozen)
        if dropped is not None:
            object.__setattr__(self, "dropout", replace(dropped, multiplier=_frozen(dropped.multiplier)))
        parameters = {n: _frozen(a) for n, a in self.score.parameters().items()}
        if parameters:
            object.__setattr__(self, "score", replace(self.score, **parameters))

    @property
    def axes(self) -> Axes:
        """The call's sizes."""
        b, hq, q, dk = self.query.shape
        _, hkv, k, dv = self.value.shape
        return Axes(b, hq, hkv, q, k, dk, dv)

    @property
    def score_shape(self) -> tuple[int, int, int, int]:
        """[B, Hq, Q, K]."""
        a = self.axes
        return (a.batch, a.query_heads, a.queries, a.keys)

    @property
    def scale_value(self) -> float:
        """The multiplier in force, as the float64 nearest to its definition (1 when there is no width)."""
        if self.scale.value is not None:
            return self.scale.value
        return default_scale(self.query.shape[-1])

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

    def but(self, **changes: Any) -> AttentionCall:
        """A copy with some fields replaced, validated again."""
        return replace(self, **changes)


def make_call(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    *,
    dtype: str = "float32",
    visible: np.ndarray | None = None,
    head_map: tuple[int, ...] | None = None,
    scale: float | None = None,
    **fields: Any,
) -> AttentionCall:
    """A call from plain arrays: `visible` defaults to everything, `head_map` to equal groups.

    Values are taken as they are: round them to `dtype` first (`attnspec.pyspec.calls.formats.round_to`).
    """
    from attnspec.pyspec.heads import grouped

    get_format(dtype)
    query, key, value = (np.array(x, dtype=np.float64) for x in (query, key, value))
    if query.ndim != 4 or key.ndim != 4:
        raise CallError(f"query has shape {list(query.shape)}: expected four axes [batch, heads, length, width]")
    mask = np.ones((1, 1, 1, 1), dtype=bool) if visible is None else np.array(visible)
    return AttentionCall(
        query=query,
        key=key,
        value=value,
        dtype=dtype,
        visibility=Visibility(mask),
        head_map=grouped(query.shape[1], key.shape[1]) if head_map is None else tuple(head_map),
        scale=Scale(scale),
        **fields,
    )


def representable(call: AttentionCall) -> bool:
    """Is every value of the call a value of its dtype?"""
    arrays = (call.query, call.key, call.value, call.bias, call.grad_output, call.sink)
    return all(bool(is_representable(call.dtype, a).all()) for a in arrays if a is not None)
