"""Programs executed: leaves become torch tensors, statements run as they are printed, and the inputs are watched."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from types import CodeType
from typing import Any

import numpy as np

from attnspec.certify.conventions.program import Leaf, Program
from attnspec.certify.observation import Observation

# Python keeps in a namespace which warnings it has given: without a common one, every run would give them again.
_WARNED: dict[Any, Any] = {}


def torch_dtype(name: str) -> Any:
    """The torch dtype of that name."""
    import torch

    return getattr(torch, name)


def bound(leaf: Leaf) -> Any:
    """The torch tensor that the leaf's literal makes, in memory of torch's own."""
    import torch

    array = leaf.array
    if array.dtype.kind == "V":  # bfloat16, which numpy does not know
        tensor = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    else:
        tensor = torch.from_numpy(array)
    # Numpy aligns its memory less than torch does, and sums may be taken in another order there.
    tensor = tensor.clone()
    return tensor if leaf.device == "cpu" else tensor.to(leaf.device)


def run_statements(statements: tuple[str, ...], names: dict[str, Any]) -> None:
    """Execute statements in a namespace."""
    for statement in statements:
        exec(_compiled(statement, "exec"), names)


def execute(
    program: Program,
    namespace: Mapping[str, Any],
    kernel_of: Callable[[Any], str] = lambda output: "unobserved",
) -> Observation:
    """Run a program and say what it returned.

    namespace: names that the program takes from outside, in place of its `subject` statements. kernel_of: reads off
    the output which kernel made it. An exception of either pass becomes an observation; one of the inputs is raised.
    """
    import torch

    names = {**_imported(program.imports), **namespace, "__warningregistry__": _WARNED}
    names |= program.constants
    names |= {name: bound(leaf) for name, leaf in program.leaves.items()}
    run_statements(program.inputs, names)
    watched = {name: _memory(names[name]) for name in program.watched}
    before = {name: memory.clone() for name, memory in watched.items()}
    try:
        with torch.enable_grad():
            run_statements(program.forward, names)
            kernel = kernel_of(names["output"])
            run_statements(program.backward, names)
            returned = {n: eval(_compiled(text, "eval"), names) for n, text in program.tensors.items()}
        found = {n: t for n, t in returned.items() if t is not None}
        tensors = {n: as_float64(t) for n, t in found.items()}
    except Exception as error:
        return Observation(error=first_line(error))
    return Observation(
        tensors=tensors,
        dtypes={n: str(t.dtype).removeprefix("torch.") for n, t in found.items()},
        devices={n: t.device.type for n, t in found.items()},
        kernel=kernel,
        changed_inputs=tuple(n for n, memory in watched.items() if not torch.equal(memory, before[n])),
    )


def as_float64(tensor: Any) -> np.ndarray:
    """A float64 numpy copy, its entries in memory as the tensor's: sums that are taken over it depend on that."""
    import torch

    values = tensor.detach().to(device="cpu", dtype=torch.float64).numpy()
    return np.array(values) if tensor.dtype == torch.float64 else values


def first_line(error: BaseException) -> str:
    """Kind and first line of an exception."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"


@lru_cache(maxsize=4096)
def _compiled(text: str, mode: str) -> CodeType:
    return compile(text, "<program>", mode)


@lru_cache(maxsize=64)
def _imported(imports: tuple[str, ...]) -> dict[str, Any]:
    names: dict[str, Any] = {}
    for statement in imports:
        exec(_compiled(statement, "exec"), names)
    return names


def _memory(tensor: Any) -> Any:
    """All bytes behind a tensor: those around a padded or offset view belong to somebody else."""
    import torch

    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.detach().untyped_storage())
