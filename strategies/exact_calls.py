"""Calls whose every intermediate is a value of the format, so that no rounding can occur."""

from __future__ import annotations

import numpy as np

from attnspec.pyspec import AttentionCall
from attnspec.pyspec.calls.formats import get_format
from attnspec.strategies.derived import call_rng, over_several_tiles, with_mask

LOW = ("bfloat16", "float16")


def counting_probe_call(call: AttentionCall) -> AttentionCall | None:
    """Query zero and value j equal to the unit vector j mod Dv: each output counts visible keys."""
    a = call.axes
    if 0 in (*call.score_shape, a.value_width):
        return None
    hot = (np.arange(a.keys)[:, None] % a.value_width) == np.arange(a.value_width)[None, :]
    plain = call.but(
        query=np.zeros_like(call.query),
        value=np.broadcast_to(hot.astype(np.float64), call.value.shape).copy(),
        dropout=None,
    )
    return plain.but(bias=np.zeros_like(call.bias)) if call.bias is not None else plain


def witness(call: AttentionCall) -> AttentionCall | None:
    """Query or key zero and no bias, 2^m visible keys a row, values ±1, and integers everywhere else.

    Weights are then 2^-m, and every product and sum is a dyadic number.
    """
    if call.axes.any_zero:
        return None
    rng = call_rng(call, "witness")
    cancelling = call.dtype in LOW and call.grad_output is not None and rng.random() < 0.4
    call = over_several_tiles(call, queries=True) if cancelling else call
    plain = call.but(
        scale=0.25,
        dropout=None,
        bias=None,
        encoding="bool" if call.encoding != "additive" else "additive",
    )
    return (_cancelling if cancelling else _scattered)(plain, rng)


def _scattered(call: AttentionCall, rng: np.random.Generator) -> AttentionCall:
    """Each row sees keys of its own.

    In low formats a large common part of the output gradient may be added, which cancels in every score gradient: it
    shows what is kept at which precision.
    """
    a = call.axes
    most = min(int(np.log2(a.keys)), int(rng.choice([2, 5, 7])))
    visible = np.zeros(call.score_shape, dtype=bool)
    for row in np.ndindex(call.score_shape[:3]):
        count = 2 ** int(rng.integers(0, most + 1))
        visible[row][rng.choice(a.keys, size=count, replace=False)] = True
    value = rng.choice([-1.0, 1.0], call.value.shape)
    size = int(rng.choice([1, 8]))
    query = rng.integers(-size, size + 1, call.query.shape).astype(np.float64)
    key = rng.integers(-size, size + 1, call.key.shape).astype(np.float64)
    if rng.random() < 0.5:
        query = np.zeros_like(query)
    else:
        key = np.zeros_like(key)
    grad = None
    if call.grad_output is not None:
        grad = np.zeros_like(call.grad_output)
        grad[..., int(rng.integers(a.value_width))] = 1.0
        common = int(rng.integers(a.value_width))
        if call.dtype in LOW and not grad[..., common].any() and rng.random() < 0.5:
            value[..., common] = 1.0
            grad[..., common] = 2.0 ** get_format(call.dtype).precision
    return with_mask(call.but(query=query, key=key, value=value, grad_output=grad), visible)


def _cancelling(call: AttentionCall, rng: np.random.Generator) -> AttentionCall:
    """All rows see the same keys, and one of the gradients is a sum of zero: what its first half adds, the second takes
    away. The sums between have more bits than the storage, so an accumulator of its type shows.
    """
    a = call.axes
    count = 2 ** int(np.log2(a.keys))
    seen = np.sort(rng.choice(a.keys, size=count, replace=False))
    visible = np.zeros(call.score_shape, dtype=bool)
    visible[..., seen] = True
    # As many values +1 as -1 in the column that has an output gradient: D is zero, and dS is that gradient times ±2^-m.
    graded = int(rng.integers(a.value_width))
    sign = rng.permuted(np.where(np.arange(count) % 2, 1.0, -1.0) * np.ones((a.batch, a.key_heads, 1)), axis=2)
    value = rng.choice([-1.0, 1.0], call.value.shape)
    value[:, :, seen, graded] = sign
    assert call.grad_output is not None
    grad = np.zeros_like(call.grad_output)
    grad[..., graded] = 1.0
    query, key = np.zeros_like(call.query), np.zeros_like(call.key)
    top = 2 ** (get_format(call.dtype).precision - 1)

    def odd(shape: tuple[int, ...]) -> np.ndarray:
        return _odd(rng.integers(-top, top + 1, shape).astype(np.float64))

    summed = str(rng.choice(["query", "key", "value"]))
    if summed == "query":
        key[:, :, seen] = sign[..., None] * odd(key[:, :, seen].shape)
    elif summed == "key":
        query = odd(query.shape)
    else:
        grad[..., graded] = odd(grad.shape[:3])
    return with_mask(call.but(query=query, key=key, value=value, grad_output=grad), visible)


def _odd(x: np.ndarray) -> np.ndarray:
    """Odd under reversal of axis 2, so that the sum along it is zero: the second half is minus the first, backwards."""
    half = x.shape[2] // 2
    whole = np.zeros_like(x)
    whole[:, :, :half] = x[:, :, :half]
    whole[:, :, x.shape[2] - half :] = -x[:, :, :half][:, :, ::-1]
    return whole
