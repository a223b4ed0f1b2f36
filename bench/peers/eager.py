"""Attention in a framework's plain operations at a chosen precision: what the peers compare with."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.mutants.calls import Tensors, ZooCall, operands, wanted
from tests.mutants.reference import visible_edges


def eager(call: ZooCall, dtype: torch.dtype, *, scale_on_key: bool = False, back: bool = True) -> Tensors:
    """out, lse, g_<operand> by autograd with every operation in `dtype`; `back`: cast results to the call's dtype.

    Rows without a visible key give zero in both passes. The scale goes on the query, or on the key.
    """
    storage = call.query.dtype
    leaves = {n: operands(call)[n].detach().to(dtype).requires_grad_() for n in wanted(call)}

    def operand(name: str) -> Tensor:
        return leaves[name] if name in leaves else getattr(call, name).to(dtype)

    query, key, value = operand("query"), operand("key"), operand("value")
    heads, kv_heads = query.shape[1], key.shape[1]
    head_map = [h * kv_heads // heads for h in range(heads)]
    key, value = key[:, head_map], value[:, head_map]
    seen = visible_edges(call, (*query.shape[:3], key.shape[2]))
    given = call.options.get("scale")
    scale = query.shape[-1] ** -0.5 if given is None else float(given)  # type: ignore[arg-type]
    scores = query @ (key * scale).mT if scale_on_key else (query * scale) @ key.mT
    softcap = call.options.get("softcap")
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)  # type: ignore[operator]
    for name in ("attn_mask", "bias"):
        term = getattr(call, name)
        if term is not None and term.is_floating_point():
            term = operand(name)
            scores = scores + torch.where(term == -torch.inf, 0.0, term)
    empty = ~seen.any(-1, keepdim=True)
    scores = scores.masked_fill(~seen & ~empty, -torch.inf)
    weights = torch.softmax(scores, -1).masked_fill(empty, 0.0)
    if call.multiplier is not None:
        weights = weights * call.multiplier.to(dtype)
    out = weights @ value
    lse = torch.logsumexp(scores.detach().float(), -1).masked_fill(empty[..., 0], -torch.inf)
    shown = {"out": out.detach(), "lse": lse}
    if leaves:
        gradients = torch.autograd.grad(out, list(leaves.values()), call.grad.to(dtype))
        shown |= {f"g_{n}": g for n, g in zip(leaves, gradients, strict=True)}
    return {n: t.to(storage) if back and n != "lse" else t for n, t in shown.items()}
