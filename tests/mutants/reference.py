"""Eager float64 attention with plain autograd, and a bound on how far the tiled kernel may be from it.

The bound follows the kernel's declared numerics term by term. Every sum of n products costs n·u·Σ|a||b| in any
order; every cast costs u|x| and half the least subnormal. A float64 kernel is compared with a float64 reference,
so the reference's own unit roundoff is added to the kernel's throughout.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .calls import Tensors, ZooCall, wanted
from .kernel import numerics_of

WIDE = torch.float64
U64 = 2.0**-53


@dataclass(frozen=True)
class Expected:
    """Exact-as-float64 results and allowed errors, by the names that `calls.run` shows."""

    value: Tensors
    allowed: Tensors


def visible_edges(call: ZooCall, full: tuple[int, ...]) -> Tensor:
    """Who may attend whom, [B,Hq,Q,K], straight from the definitions."""
    options, (_, _, queries, keys) = call.options, full
    seen = torch.ones(full, dtype=torch.bool)
    for additive in (call.attn_mask, call.bias):
        if additive is not None:
            seen &= additive if additive.dtype == torch.bool else additive != -torch.inf
    diagonal = torch.arange(queries)[:, None] + (keys - queries if options.get("causal") == "lower_right" else 0)
    key = torch.arange(keys)[None, :]
    if options.get("is_causal"):
        seen &= key <= diagonal
    left, right = options.get("window") or (None, None)  # type: ignore[misc]
    if left is not None:
        seen &= key >= diagonal - left
    if right is not None:
        seen &= key <= diagonal + right
    if "segments" in options:
        a, b = (s if s.dim() == 2 else s[None] for s in options["segments"])  # type: ignore[attr-defined]
        seen &= (a[:, :, None] == b[:, None, :])[:, None]
    return seen


def expect(call: ZooCall) -> Expected:
    """Reference results of a call, and the error its storage type allows."""
    leaves = {n: getattr(call, n).detach().to(WIDE).requires_grad_() for n in wanted(call)}
    query, key, value = (leaves.get(n, getattr(call, n).to(WIDE)) for n in ("query", "key", "value"))
    batch, heads, queries, width = query.shape
    kv_heads, keys, value_width = key.shape[1], key.shape[2], value.shape[3]
    full = (batch, heads, queries, keys)
    head_map = list(call.options.get("head_map") or [h * kv_heads // heads for h in range(heads)])  # type: ignore[call-overload]
    given = call.options.get("scale")
    scale: float = given if given is not None else (width**-0.5 if width else 1.0)  # type: ignore[assignment]
    softcap = call.options.get("softcap")
    seen = visible_edges(call, full)
    key, value = key[:, head_map], value[:, head_map]
    product = scale * (query @ key.mT)
    slope = torch.ones_like(product)
    if softcap is not None:
        inner = torch.tanh(product / softcap)
        slope, product = 1 - inner**2, softcap * inner
    bias = torch.zeros(full, dtype=WIDE)
    for name in ("attn_mask", "bias"):
        term = getattr(call, name)
        if term is not None and term.is_floating_point():
            term = leaves.get(name, term.to(WIDE))
            bias = bias + torch.where(term == -torch.inf, 0.0, term)
    scores = torch.where(seen, product + bias, -torch.inf)
    top = scores.amax(-1, keepdim=True) if keys else torch.zeros(*full[:3], 1, dtype=WIDE)
    top = torch.where(top == -torch.inf, 0.0, top).detach()
    numerator = torch.where(seen, torch.exp(torch.where(seen, scores, 0.0) - top), 0.0)
    mass = numerator.sum(-1, keepdim=True)
    empty = ~seen.any(-1, keepdim=True)
    weights = numerator / torch.where(empty, 1.0, mass)
    dropout = torch.ones(full, dtype=WIDE) if call.multiplier is None else call.multiplier.to(WIDE).expand(full)
    out = (weights * dropout) @ value
    lse = torch.where(empty, -torch.inf, top + torch.log(torch.where(empty, 1.0, mass)))[..., 0]
    grad = call.grad.to(WIDE)
    gradients = torch.autograd.grad(out, list(leaves.values()), grad) if leaves else ()
    results = {"out": out, "lse": lse} | {f"g_{n}": g for n, g in zip(leaves, gradients, strict=True)}

    # ---- allowed errors; a* are absolute values, e* absolute errors, r* relative errors -------------------------
    q, k, v, g, b, p, o, slope = (x.detach() for x in (query, key, value, grad, bias, weights, out, slope))
    storage = call.query.dtype
    info = torch.finfo(storage)
    acc = U64 + torch.finfo(numerics_of(storage).accumulator).eps / 2
    low = 0.0 if storage in (torch.float32, WIDE) else info.eps / 2
    tiny = info.smallest_normal * (1.0 if low == 0.0 else info.eps)
    tiles = -(-keys // 16) + -(-queries // 16) + 2
    s = torch.where(seen, scores.detach(), 0.0)
    a_scores = abs(scale) * (q.abs() @ k.abs().mT) + b.abs() + s.abs() + (softcap or 0.0)  # type: ignore[operator]
    e_scores = torch.where(seen, (width + 8) * acc * a_scores + tiny, 0.0)
    worst = e_scores.amax(-1, keepdim=True) if keys else torch.zeros_like(mass)
    size = s.abs().amax(-1, keepdim=True) if keys else torch.zeros_like(mass)
    # each tile rescales by exp(old maximum - new maximum): the difference rounds, the exponential rounds
    r_weights = torch.expm1(4 * worst + (tiles + 4) * acc * (4 * size + 8) + (keys + tiles) * acc)
    z = dropout.abs()
    pz = p * z
    e_out = (r_weights + low + (keys + tiles + 4) * acc) * (pz @ v.abs()) + tiny * (z @ v.abs())
    e_out = e_out + (low + acc) * o.abs() + tiny
    e_lse = (r_weights + 8 * acc * (1 + size + lse.detach().abs()[..., None]))[..., 0]
    r_again = torch.expm1(worst + torch.where(empty, 0.0, e_lse[..., None]) + 8 * acc * (1 + 2 * size))
    gp, a_gp = dropout * (g @ v.mT), z * (g.abs() @ v.abs().mT)
    delta = (g * o).sum(-1, keepdim=True)
    e_delta = (g.abs() * e_out).sum(-1, keepdim=True) + (value_width + 2) * acc * (g * o).abs().sum(-1, keepdim=True)
    e_gp = (value_width + 3) * acc * a_gp + e_delta
    a_ds = p * (a_gp + delta.abs())
    e_ds = (r_again + 4 * acc) * a_ds + (1 + r_again) * p * e_gp + tiny
    e_bias = e_ds
    # a softcap's slope 1 - tanh² moves by at most 2·e/c where the score before the cap moves by e
    e_slope = 8 * acc + (2 * e_scores / softcap if softcap else 0.0)  # type: ignore[operator]
    ds = p * (gp - delta) * slope
    e_ds = e_ds * slope + e_slope * a_ds + low * ds.abs() + tiny
    a_cast = ds.abs() + e_ds
    gq_sum = abs(scale) * (e_ds @ k.abs() + (keys + tiles + 4) * acc * (a_cast @ k.abs()))
    gk_sum = abs(scale) * (e_ds.mT @ q.abs() + (queries + tiles + 4) * acc * (a_cast.mT @ q.abs()))
    e_pz = pz * (r_again + low) + tiny * (z + 1)
    gv_sum = e_pz.mT @ g.abs() + (queries + tiles + 4) * acc * ((pz + e_pz).mT @ g.abs())
    heads_index = torch.tensor(head_map, dtype=torch.long)
    fold = lambda x: torch.zeros(batch, kv_heads, *x.shape[2:], dtype=WIDE).index_add_(1, heads_index, x)  # noqa: E731
    allowed = {"out": e_out, "lse": torch.where(empty[..., 0], 0.0, e_lse)}
    sums = {"query": gq_sum, "key": fold(gk_sum), "value": fold(gv_sum)}
    for name in leaves:
        exact = results[f"g_{name}"].detach().abs()
        if name in sums:
            error, count = sums[name], heads
        else:
            shape = getattr(call, name).shape
            error, count = e_bias.sum_to_size(shape), math.prod(full) // max(1, math.prod(shape))
            exact = exact + count * acc * a_ds.sum_to_size(shape) / max(low + acc, acc)
        allowed[f"g_{name}"] = error * (1 + count * acc) + (low + count * acc + acc) * exact + tiny
    return Expected({n: x.detach() for n, x in results.items()}, allowed)


def worst_ratio(shown: Tensors, expected: Expected) -> tuple[float, str]:
    """The largest error over its bound and where; infinite where a number is missing, NaN or infinite unasked."""
    worst, where = 0.0, ""
    for name, exact in expected.value.items():
        got = shown[name].to(WIDE)
        if got.shape != exact.shape:
            return math.inf, f"{name}: shape {tuple(got.shape)}"
        error = torch.where(got == exact, 0.0, (got - exact).abs())
        ratio = torch.where(error == 0.0, 0.0, error / expected.allowed[name]).nan_to_num(nan=math.inf)
        if ratio.numel() and float(ratio.max()) > worst:
            worst, where = float(ratio.max()), name
    return worst, where
