"""The trace again, twice, without a matrix: row by row over all keys, and over lists of the keys that a row sees.

Both are written in single numbers of a domain, so that over rationals they must equal the vectorised trace exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from attnspec.pyspec.arrays import ArrayDomain
from attnspec.pyspec.calls.call import AttentionCall
from attnspec.pyspec.domains.float64 import Float64Domain
from attnspec.pyspec.oracle.trace import STAGES, Trace, sealed
from attnspec.pyspec.sink import extended

Legal = Callable[[int, int, int, int], bool]


def trace_by_rows(call: AttentionCall, domain: ArrayDomain | None = None) -> Trace:
    """Every row by itself, every key asked whether it is visible."""
    wide = extended(call)
    visible = wide.visible
    every = range(wide.axes.keys)
    return _scalar(call, wide, domain or Float64Domain(), lambda b, h, i: every, lambda *at: bool(visible[at]))


def trace_by_lists(call: AttentionCall, domain: ArrayDomain | None = None) -> Trace:
    """Every row over the list of keys that it sees: the mask translated once, and never asked again.

    What hidden keys score is not computed; it reads zero.
    """
    wide = extended(call)
    lists = {at: np.flatnonzero(wide.visible[at]).tolist() for at in np.ndindex(wide.score_shape[:3])}
    return _scalar(call, wide, domain or Float64Domain(), lambda *row: lists[row], lambda *at: True)


def _scalar(
    call: AttentionCall,
    wide: AttentionCall,
    dom: ArrayDomain,
    keys_of: Callable[[int, int, int], Sequence[int]],
    legal: Legal,
) -> Trace:
    number = dom.number
    a, alpha, zero, hidden = wide.axes, number(wide.scale_value), number(0.0), float("-inf")
    cap = None if wide.softcap is None else number(wide.softcap)
    found = _blank(dom, call, wide)
    subtracts = dom.row_shift(np.ones((1, 1), dtype=bool), dom.lift(np.ones((1, 1)))) is not None
    bias = None if wide.bias is None else np.broadcast_to(wide.bias, wide.score_shape)
    keep = wide.multiplier
    for b, h, i in np.ndindex(wide.score_shape[:3]):
        g, row = wide.head_map[h], (b, h, i)
        q, grad = wide.query[row], None if wide.grad_output is None else wide.grad_output[row]
        seen = []
        for j in keys_of(b, h, i):
            at = (*row, j)
            k, v = wide.key[b, g, j], wide.value[b, g, j]
            found["dot"][at] = _dot(dom, q, k)
            found["scaled"][at] = s = found["dot"][at] * alpha
            if cap is not None:
                s = dom.tanh(s / cap) * cap
            found["capped"][at] = s
            s = s if bias is None else s + number(bias[at])
            if call.slopes is not None and j < call.axes.keys:
                s = s - number(call.slopes[h]) * number(_away(call, i, j))
            found["biased"][at] = s
            found["multiplier"][at] = number(1.0 if keep is None else keep[at])
            if grad is not None:
                found["consumed_grad"][at] = _dot(dom, grad, v)
                found["weights_grad"][at] = found["consumed_grad"][at] * found["multiplier"][at]
            if legal(*at):
                seen.append(j)
        top = max((found["biased"][(*row, j)] for j in seen), default=zero) if subtracts else zero
        mass = zero
        for j in seen:
            at = (*row, j)
            found["masked"][at] = found["biased"][at]
            found["shifted"][at] = found["biased"][at] - top
            found["exp"][at] = dom.exp(found["shifted"][at])
            mass = mass + found["exp"][at]
        found["row_max"][(*row, 0)], found["denominator"][(*row, 0)] = top, mass
        if "lse" in found:
            found["lse"][(*row, 0)] = dom.log(mass) + top if seen else hidden
        delta = zero
        for j in seen:
            at = (*row, j)
            found["weights"][at] = found["exp"][at] / mass
            found["consumed"][at] = found["weights"][at] * found["multiplier"][at]
            for n in range(a.value_width):
                found["output"][(*row, n)] = found["output"][(*row, n)] + found["consumed"][at] * number(
                    wide.value[b, g, j, n]
                )
            if grad is not None:
                delta = delta + found["weights"][at] * found["weights_grad"][at]
        if grad is not None:
            found["delta"][(*row, 0)] = delta
            _back(dom, call, wide, found, row, seen, alpha, cap)
    return sealed(call, dom, found, wide.visible)


def _back(
    dom: ArrayDomain,
    call: AttentionCall,
    wide: AttentionCall,
    found: dict[str, np.ndarray],
    row: tuple[int, int, int],
    seen: Sequence[int],
    alpha: Any,
    cap: Any,
) -> None:
    """Gradients of one row, added where they belong."""
    number, (b, h, _) = dom.number, row
    g, delta, keys = wide.head_map[h], found["delta"][(*row, 0)], call.axes.keys
    assert wide.grad_output is not None
    for j in seen:
        at = (*row, j)
        gs = found["weights"][at] * (found["weights_grad"][at] - delta)
        found["scores_grad"][at] = gs
        if call.bias is not None and j < keys:
            where = tuple(0 if n == 1 else p for n, p in zip(call.bias.shape, at, strict=True))
            found["grad_bias"][where] = found["grad_bias"][where] + gs
        if call.slopes is not None and j < keys:
            found["grad_slopes"][h] = found["grad_slopes"][h] - gs * number(_away(call, at[2], j))
        if j == keys:
            found["grad_sink"][h] = found["grad_sink"][h] + gs
        if cap is not None:
            t = found["capped"][at] / cap
            gs = gs * (number(1.0) - t * t)
        found["capped_grad"][at] = gs
        found["scaled_grad"][at] = gs = gs * alpha
        for n in range(call.axes.key_width):
            found["grad_query"][(*row, n)] = found["grad_query"][(*row, n)] + gs * number(wide.key[b, g, j, n])
            if j < keys:
                found["grad_key"][b, g, j, n] = found["grad_key"][b, g, j, n] + gs * number(wide.query[(*row, n)])
        for n in range(call.axes.value_width if j < keys else 0):
            found["grad_value"][b, g, j, n] = found["grad_value"][b, g, j, n] + found["consumed"][at] * number(
                wide.grad_output[(*row, n)]
            )


def _blank(dom: ArrayDomain, call: AttentionCall, wide: AttentionCall) -> dict[str, np.ndarray]:
    """Zeros of every stage's shape, -inf where hidden keys stand at it."""
    scores, zero = wide.score_shape, dom.number(0.0)
    shapes: dict[str, tuple[int, ...]] = {}
    for name, axes in STAGES.items():
        last = {"key": scores[3], "": 1}.get(axes[-1])
        if last is not None:
            shapes[name] = (*scores[:3], last)
    shapes |= {"output": (*scores[:3], call.axes.value_width), "grad_query": call.query.shape}
    shapes |= {"grad_key": call.key.shape, "grad_value": call.value.shape}
    shapes.pop("grad_bias")
    if call.bias is not None:
        shapes["grad_bias"] = call.bias.shape
    for name in ("sink", "slopes"):
        if getattr(call, name) is not None:
            shapes[f"grad_{name}"] = getattr(call, name).shape
    backward = [n for n in shapes if n == "delta" or n.endswith("_grad") or n.startswith("grad_")]
    for name in backward if call.grad_output is None else ():
        shapes.pop(name)
    if not dom.has_logarithm:
        shapes.pop("lse")
    kind = np.float64 if isinstance(zero, float) else object
    out = {}
    for name, shape in shapes.items():
        out[name] = np.empty(shape, dtype=kind)
        out[name][...] = float("-inf") if name in ("masked", "shifted") else zero
    return out


def _away(call: AttentionCall, i: int, j: int) -> float:
    return float(abs(i + call.axes.keys - call.axes.queries - j))


def _dot(dom: ArrayDomain, x: np.ndarray, y: np.ndarray) -> Any:
    total = dom.number(0.0)
    for p, r in zip(x, y, strict=True):
        total = total + dom.number(p) * dom.number(r)
    return total
