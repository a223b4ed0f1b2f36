"""What a kernel's interface promises beside numbers: the same bits again, and no answer to a call without meaning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from attnspec.certify.claims import requires
from attnspec.certify.trials.contracts import Refused, SameBits
from attnspec.certify.trials.property import MODIFIERS, Trials, claim
from attnspec.certify.trials.trial import Trial
from attnspec.pyspec import AttentionCall
from attnspec.pyspec.calls.formats import round_to
from attnspec.pyspec.heads import is_grouped
from attnspec.strategies.derived import call_rng, over_several_tiles, with_mask


def _rounding(call: AttentionCall) -> AttentionCall:
    """Values whose sums round, over more keys than a small tile has: an order of summation then shows."""
    rng = call_rng(call, "values that round")
    call = over_several_tiles(call)
    return call.but(value=round_to(call.dtype, rng.standard_normal(call.value.shape)))


@claim(
    "same-bits-again",
    "The same call gives the same bits again, in every tensor.",
    basis="interface: the spec is a function",
    prepare=_rounding,
    needs=requires("deterministic"),
    keep=MODIFIERS,
    resembles=("flash-attention#2244",),
)
def same_bits_again(call: AttentionCall) -> Trials:
    yield Trial(call, tensors=(), expect=(SameBits(),))


def faults(call: AttentionCall) -> Iterator[tuple[str, Mapping[str, np.ndarray]]]:
    """Ways to spoil a call: what is wrong, and the arrays in place of its own (one of another type is stored so)."""
    a, key, value = call.axes, call.key, call.value
    other = "float16" if call.dtype == "float32" else "float32"
    with np.errstate(over="ignore"):
        yield f"key in {other} beside a query in {call.dtype}", {"key": key.astype(other)}
        yield f"value in {other} beside a query in {call.dtype}", {"value": value.astype(other)}
    yield f"{a.keys} keys and {a.keys + 1} values", {"value": _longer(value, 2)}
    yield f"queries of width {a.key_width} and keys of width {a.key_width + 1}", {"key": _longer(key, 3)}
    if a.keys > 1 and call.encoding == "bool":  # a mask over one key may stand for any number
        spoiled = {"key": _longer(key, 2), "value": _longer(value, 2)}
        yield f"{a.keys + 1} keys beside a mask over {a.keys}", spoiled
    if a.batch > 1:  # one batch may stand for any number
        spoiled = {"key": _longer(key, 0), "value": _longer(value, 0)}
        yield f"{a.batch + 1} batches of keys and values for {a.batch} of queries", spoiled
    if a.query_heads > 1:
        count = next(n for n in range(2, a.query_heads + 2) if a.query_heads % n)
        heads = np.arange(count) % a.key_heads
        spoiled = {"key": key[:, heads], "value": value[:, heads]}
        yield f"{a.query_heads} query heads and {count} key and value heads", spoiled


def _longer(x: np.ndarray, axis: int) -> np.ndarray:
    """One more along an axis, a repetition of the last."""
    return np.concatenate([x, np.take(x, [-1], axis=axis)], axis=axis)


def _fit(call: AttentionCall) -> AttentionCall | None:
    """A call whose heads stand in equal groups, with a whole boolean mask or none, and no gradient."""
    a = call.axes
    if a.any_zero or not is_grouped(call.head_map, a.key_heads):
        return None
    plain = call.but(bias=None, encoding="bool", dropout=None, grad_output=None)
    if call_rng(call, "mask").random() < 0.5:
        return with_mask(plain, call.visible)
    return with_mask(plain, np.ones((1, 1, 1, 1), dtype=bool)).but(encoding="none")


@claim(
    "meaningless-refused",
    "A call whose types, lengths, widths, batches or heads do not fit one another raises an exception.",
    basis="interface: the spec gives such a call no meaning",
    prepare=_fit,
    needs=requires("refusals"),
    small=True,
    resembles=("flash-linear-attention#1029", "pytorch#171190"),
)
def meaningless_refused(call: AttentionCall) -> Trials:
    yield Trial(call, tensors=())
    for what, raw in faults(call):
        yield Trial(call, raw=raw, expect=(Refused(what),))
