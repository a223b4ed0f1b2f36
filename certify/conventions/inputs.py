"""What a torch function is handed: tensors, the mask in the encoding that the call asks for, wanted gradients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attnspec.certify.conventions.layouts import lay_out_statements, mask_statements
from attnspec.certify.conventions.program import Leaf, Program, make_leaf, raw_leaf
from attnspec.pyspec import AttentionCall
from attnspec.pyspec.calls.encodings import CausalFlag, encode

_ENCODINGS = {"bool": "sdpa_bool", "additive": "additive", "causal_flag": "is_causal_flag"}


@dataclass(frozen=True, eq=False)
class TorchInputs:
    """Leaves and the statements that make a torch function's arguments of them.

    mask: "attn_mask", or "None" where the call has no mask as a tensor. is_causal: the flag. differentiated: leaves
    whose gradients are asked for. watched: variables that the function must leave as they are. constants: numbers and
    shapes by name.
    """

    leaves: dict[str, Leaf]
    statements: tuple[str, ...]
    mask: str = "None"
    is_causal: bool = False
    differentiated: tuple[str, ...] = ()
    watched: tuple[str, ...] = ()
    constants: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class _Mask:
    leaves: dict[str, Leaf] = field(default_factory=dict)
    statements: tuple[str, ...] = ()
    is_causal: bool = False


def torch_inputs(
    call: AttentionCall,
    raw: Mapping[str, np.ndarray] | None,
    device: str,
    *,
    bias_gradient: bool,
    extra: Mapping[str, np.ndarray] | None = None,
) -> TorchInputs:
    """The arguments of a call in torch.

    raw: arrays in place of query, key or value; those of float64 are stored in the call's dtype, others in their own.
    bias_gradient: whether a bias's gradient is asked for, when there are gradients. extra: further tensors of the
    function by name, in the call's dtype, differentiated like query, key and value.
    """
    leaves: dict[str, Leaf] = {}
    statements: list[str] = []
    for name in ("query", "key", "value"):
        if raw is not None and name in raw:
            values = raw[name]
            kind = call.dtype if values.dtype == np.float64 else values.dtype.name
            leaves[name] = raw_leaf(values, kind, device)
        else:
            leaves[name] = make_leaf(getattr(call, name), call.dtype, device)
        statements += lay_out_statements(name, getattr(call.layout, name))
    leaves |= {name: make_leaf(values, call.dtype, device) for name, values in (extra or {}).items()}
    differentiated = [] if call.grad_output is None else list(leaves)
    statements += [f"{name}.requires_grad_()" for name in differentiated]
    watched = list(leaves)
    with_bias = call.grad_output is not None and bias_gradient and call.bias is not None
    mask = _bias_mask(call, device) if with_bias else _mask(call, device)
    if mask.leaves:
        watched.append("attn_mask")
    leaves |= mask.leaves
    if with_bias and mask.leaves:
        differentiated.append("bias")
    if call.grad_output is not None:
        leaves["grad_output"] = make_leaf(call.grad_output, call.dtype, device)
        watched.append("grad_output")
    return TorchInputs(
        leaves,
        (*statements, *mask.statements),
        "attn_mask" if mask.leaves else "None",
        mask.is_causal,
        tuple(differentiated),
        tuple(watched),
        {"score_shape": call.score_shape} if mask.leaves and call.layout.mask != "contiguous" else {},
    )


def _relation(call: AttentionCall) -> np.ndarray:
    """The visible keys as they are stored, one row for many where the call's mask is a broadcast one."""
    return call.visibility.mask if call.visibility.query_valid is None else call.visible


def _mask(call: AttentionCall, device: str) -> _Mask:
    """The mask as its encoding makes it."""
    if call.encoding == "none":
        return _Mask()
    encoded = encode(_ENCODINGS[call.encoding], _relation(call), call.bias, dtype=call.dtype, shape=call.score_shape)
    if isinstance(encoded.payload, CausalFlag):
        return _Mask(is_causal=encoded.payload.is_causal)
    boolean = call.encoding == "bool"
    leaf = make_leaf(encoded.payload, "bool" if boolean else call.dtype, device)
    return _Mask({"attn_mask": leaf}, mask_statements(call.layout.mask, boolean=boolean))


def _bias_mask(call: AttentionCall, device: str) -> _Mask:
    """The additive mask made of its bias inside the program, so that autograd finds its way to the bias."""
    assert call.bias is not None
    leaves = {
        "bias": make_leaf(call.bias, call.dtype, device),
        "visible": make_leaf(encode("sdpa_bool", _relation(call), shape=call.score_shape).payload, "bool", device),
    }
    made = ("bias.requires_grad_()", "attn_mask = torch.where(visible, bias, -torch.inf)")
    return _Mask(leaves, (*made, *mask_statements(call.layout.mask, boolean=False)))


def torch_program(
    call: AttentionCall,
    inputs: TorchInputs,
    forward: tuple[str, ...],
    *,
    contexts: tuple[str, ...] = (),
    imports: tuple[str, ...] = (),
    subject: tuple[str, ...] = (),
    also: Mapping[str, str] | None = None,
    constants: Mapping[str, Any] | None = None,
) -> Program:
    """The program around a forward pass that reads the inputs and leaves `output`.

    contexts: expressions of context managers around the forward pass. also: further tensors returned, by name.
    constants: numbers that `forward` reads.
    """
    # What needs no gradient runs as inference does, which may take another path of the kernel.
    contexts = contexts if call.grad_output is not None else ("torch.no_grad()", *contexts)
    if contexts:
        lines = "\n".join(f"    {line}" for statement in forward for line in statement.splitlines())
        forward = (f"with {', '.join(contexts)}:\n{lines}",)
    return Program(
        ("import torch", *imports),
        subject,
        inputs.leaves,
        inputs.statements,
        forward,
        () if call.grad_output is None else ("output.backward(grad_output)",),
        {"output": "output.detach()", **(also or {})} | _gradients(call, inputs),
        inputs.watched,
        {**inputs.constants, **(constants or {})},
    )


def _gradients(call: AttentionCall, inputs: TorchInputs) -> dict[str, str]:
    # Where there is nothing to differentiate, autograd may leave a gradient out: it is zero.
    empty = any(0 in t.shape for t in (call.query, call.key, call.value))
    form = "{n}.grad if {n}.grad is not None else torch.zeros_like({n})" if empty else "{n}.grad"
    return {f"grad_{name}": form.format(n=name) for name in inputs.differentiated}
