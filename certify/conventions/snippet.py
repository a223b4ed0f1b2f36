"""Counter-examples as programs: a call written out so that it can be pasted into a Python prompt."""

from __future__ import annotations

from typing import Any

import numpy as np

from attnspec.pyspec import AttentionCall, call_to_json
from attnspec.pyspec.calls.formats import FORMATS, to_hex

_TORCH = {name: f"torch.{name}" for name in FORMATS}
_INLINE = 600


def call_literal(call: AttentionCall) -> str:
    """Statements that define `call` through pyspec."""
    return f"from attnspec.pyspec import call_from_json\n\ncall = call_from_json({call_to_json(call)!r})\n"


def _number(x: float) -> str:
    if x == int(x) and abs(x) < 1e6:
        return str(int(x))
    return repr(float(x))


def _nested(a: np.ndarray) -> str:
    if a.ndim == 0:
        return _number(float(a))
    return "[" + ", ".join(_nested(x) for x in a) + "]"


def tensor_literal(array: np.ndarray, dtype: str) -> str:
    """A torch expression for the array, exact: decimals for small arrays, bit patterns for large ones."""
    kind = _TORCH[dtype]
    if array.size == 0:
        return f"torch.zeros({list(array.shape)}, dtype={kind})"
    if array.size > 8 and (array == array.flat[0]).all():
        return f"torch.full({list(array.shape)}, {_number(float(array.flat[0]))}, dtype={kind})"
    if array.size <= _INLINE:
        return f"torch.tensor({_nested(array)}, dtype={kind})".replace("-inf", "-math.inf").replace("inf,", "inf,")
    words = to_hex(dtype, array)
    data = "".join(bytes.fromhex(w)[::-1].hex() for w in words)
    return f"torch.frombuffer(bytearray.fromhex('{data}'), dtype={kind}).reshape({list(array.shape)}).clone()"


def bool_literal(array: np.ndarray) -> str:
    """A torch expression for a boolean array."""
    if array.size == 0:
        return f"torch.zeros({list(array.shape)}, dtype=torch.bool)"
    if array.size > 8 and array.all():
        return f"torch.ones({list(array.shape)}, dtype=torch.bool)"
    return f"torch.tensor({_nested(array.astype(int))}, dtype=torch.bool)".replace("'", "")


def torch_program(call: AttentionCall, imports: str, invocation: Any, device: str) -> str:
    """A program that builds the call's tensors, runs `invocation(arguments)` and prints output and gradients."""
    lines = ["import math", "", "import torch", *imports.splitlines(), ""]
    grads = call.grad_output is not None
    for name in ("query", "key", "value"):
        lines.append(f"{name} = {tensor_literal(getattr(call, name), call.dtype)}{_moved(device)}")
    lines += _layouts(call)
    arguments = ["query", "key", "value"]
    leaves = ["query", "key", "value"]
    if call.encoding == "bool":
        lines.append(f"mask = {bool_literal(_mask(call))}{_moved(device)}")
        arguments.append("attn_mask=mask")
    elif call.encoding == "additive":
        bias = np.zeros((1, 1, 1, 1)) if call.bias is None else call.bias
        lines.append(f"bias = {tensor_literal(bias, call.dtype)}{_moved(device)}")
        lines.append(f"visible = {bool_literal(_mask(call))}{_moved(device)}")
        lines.append("mask = torch.where(visible, bias, -math.inf)")
        arguments.append("attn_mask=mask")
    elif call.encoding == "causal_flag":
        arguments.append("is_causal=True")
    if call.scale is not None:
        arguments.append(f"scale={call.scale!r}")
    if call.softcap is not None:
        arguments.append(f"softcap={call.softcap!r}")
    if call.sink is not None:
        lines.append(f"sink = {tensor_literal(call.sink, call.dtype)}{_moved(device)}")
        arguments.append("sink=sink")
        leaves.append("sink")
    if call.head_map != tuple(range(call.axes.key_heads)):
        arguments.append("enable_gqa=True")
    if grads:
        lines.append(f"for tensor in ({', '.join(leaves)}):\n    tensor.requires_grad_()")
    lines.append(invocation(", ".join(arguments)))
    lines.append("print(output)")
    if grads:
        assert call.grad_output is not None
        lines.append(f"output.backward({tensor_literal(call.grad_output, call.dtype)}{_moved(device)})")
        lines.append(f"print({', '.join(f'{leaf}.grad' for leaf in leaves)}, sep='\\n')")
    return "\n".join(lines) + "\n"


def _mask(call: AttentionCall) -> np.ndarray:
    return call.visibility.mask if call.visibility.query_valid is None else call.visible


def _moved(device: str) -> str:
    return "" if device == "cpu" else f".to({device!r})"


def _layouts(call: AttentionCall) -> list[str]:
    """Statements that give each tensor its memory layout (values stay the same)."""
    recipes = {
        "heads_last": "{n} = {n}.transpose(1, 2).contiguous().transpose(1, 2)",
        "transposed": "{n} = {n}.transpose(2, 3).contiguous().transpose(2, 3)",
        "padded": "{n} = torch.nn.functional.pad({n}, (0, 3))[..., :{n}.shape[-1]]",
        "offset": "{n} = torch.cat([{n}.new_zeros(1), {n}.flatten()])[1:].reshape({n}.shape)",
    }
    return [
        recipes[kind].format(n=name)
        for name in ("query", "key", "value")
        if (kind := getattr(call.layout, name)) in recipes
    ]
