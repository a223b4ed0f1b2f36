"""Calls as torch tensors and back: dtypes, memory layouts, masks, and what became of the inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from attnspec.certify.subjects.subject import Observation
from attnspec.pyspec import AttentionCall

PADDING = 3


def torch_dtype(name: str) -> Any:
    """The torch dtype of that name."""
    import torch

    return {
        "float64": torch.float64,
        "float32": torch.float32,
        "bfloat16": torch.bfloat16,
        "float16": torch.float16,
    }[name]


def dtype_name(dtype: Any) -> str:
    """The name of a torch dtype without its module."""
    return str(dtype).removeprefix("torch.")


def to_tensor(values: np.ndarray, dtype: Any, device: str, layout: str = "contiguous") -> Any:
    """A leaf tensor holding these values in that memory layout.

    The bytes around a padded or offset tensor are NaN, so that a read outside its bounds shows.
    """
    import torch

    x = torch.from_numpy(np.array(values, dtype=np.float64, order="C")).to(dtype=dtype, device=device)
    if layout == "heads_last":
        x = x.transpose(1, 2).contiguous().transpose(1, 2)
    elif layout == "transposed":
        x = x.transpose(2, 3).contiguous().transpose(2, 3)
    elif layout == "padded":
        room = torch.full((*x.shape[:-1], x.shape[-1] + PADDING), float("nan"), dtype=dtype, device=device)
        room[..., : x.shape[-1]] = x
        x = room[..., : x.shape[-1]]
    elif layout == "offset":
        room = torch.full((x.numel() + 2 * PADDING,), float("nan"), dtype=dtype, device=device)
        room[PADDING : PADDING + x.numel()] = x.flatten()
        x = room[PADDING : PADDING + x.numel()].view(x.shape)
    return x.detach()


def lay_out_mask(mask: Any, layout: str, shape: tuple[int, ...]) -> Any:
    """The mask in the memory layout that the call asks for; "contiguous" keeps its broadcast shape."""
    if layout == "expanded":
        return mask.expand(shape)
    if layout == "transposed":
        return mask.expand(shape).transpose(2, 3).contiguous().transpose(2, 3)
    if layout == "padded":
        whole = mask.expand(shape)
        room = whole.new_empty((*shape[:-1], shape[-1] + PADDING))
        room[..., : shape[-1]] = whole
        return room[..., : shape[-1]]
    return mask


def told_mask(call: AttentionCall, device: str, *, bias_leaf: bool) -> tuple[Any, Any]:
    """(attn_mask, bias leaf or None) as the call's encoding says it; attn_mask None for flags and no mask."""
    import torch

    if call.encoding in ("none", "causal_flag"):
        return None, None
    raw = call.visibility.mask if call.visibility.query_valid is None else call.visible
    visible = torch.from_numpy(np.array(raw, order="C")).to(device)
    if call.encoding == "bool":
        return lay_out_mask(visible, call.layout.mask, call.score_shape), None
    values = np.zeros((1, 1, 1, 1)) if call.bias is None else call.bias
    bias = to_tensor(values, torch_dtype(call.dtype), device)
    leaf = bias.requires_grad_() if bias_leaf and call.bias is not None else None
    mask = torch.where(visible, bias, -torch.inf)
    return lay_out_mask(mask, call.layout.mask, call.score_shape), leaf


def as_float64(tensor: Any) -> np.ndarray:
    """A float64 numpy copy."""
    import torch

    return np.array(tensor.detach().to(device="cpu", dtype=torch.float64).numpy())


def first_line(error: BaseException) -> str:
    """Kind and first line of an exception."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"


def run_torch(
    call: AttentionCall,
    raw: Mapping[str, np.ndarray] | None,
    device: str,
    invoke: Callable[[Any, Any, Any, Any], Any],
    *,
    bias_gradient: bool,
    extra: Mapping[str, Any] | None = None,
    kernel_of: Callable[[Any], str] = lambda output: "unobserved",
) -> Observation:
    """Run `invoke(query, key, value, mask)` and its backward pass, watching the inputs.

    `invoke` returns the output, or (output, lse). `extra`: further tensors that it reads by itself and that have a
    gradient, by name. An exception becomes an observation.
    """
    import torch

    dtype = torch_dtype(call.dtype)
    leaves: dict[str, Any] = {}
    for name in ("query", "key", "value"):
        values = (raw or {}).get(name, getattr(call, name))
        stored = dtype if values.dtype == np.float64 else torch_dtype(values.dtype.name)
        leaves[name] = to_tensor(values, stored, device, getattr(call.layout, name))
    leaves |= extra or {}
    backward = call.grad_output is not None
    mask, bias = told_mask(call, device, bias_leaf=backward and bias_gradient)
    watched = dict(leaves)
    if mask is not None:
        watched["attn_mask"] = mask
    if call.grad_output is not None:
        watched["grad_output"] = to_tensor(call.grad_output, dtype, device)
    before = {n: _memory(t).clone() for n, t in watched.items()}
    if backward:
        for leaf in leaves.values():
            leaf.requires_grad_()
    try:
        with torch.set_grad_enabled(backward):
            result = invoke(leaves["query"], leaves["key"], leaves["value"], mask)
        output, lse = result if isinstance(result, tuple) else (result, None)
        kernel = kernel_of(output)
        if backward:
            output.backward(watched["grad_output"])
    except Exception as error:
        return Observation(error=first_line(error))
    found = {"output": output}
    if lse is not None:
        found["lse"] = lse
    if backward:
        wanted = {**leaves, "bias": bias} if bias is not None else leaves
        for name, leaf in wanted.items():
            # Where there is nothing to differentiate, autograd may leave a gradient out: it is zero.
            if leaf.grad is not None or call.axes.any_zero:
                found[f"grad_{name}"] = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
    changed = [n for n, t in watched.items() if not torch.equal(_memory(t), before[n])]
    return Observation(
        tensors={n: as_float64(t) for n, t in found.items()},
        dtypes={n: dtype_name(t.dtype) for n, t in found.items()},
        devices={n: t.device.type for n, t in found.items()},
        kernel=kernel,
        changed_inputs=tuple(changed),
    )


def _memory(tensor: Any) -> Any:
    """All bytes behind a tensor: those around a padded or offset view belong to somebody else."""
    import torch

    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.detach().untyped_storage())
