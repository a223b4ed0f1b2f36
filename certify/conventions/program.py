"""One run of a subject as Python statements, which are executed for the run and printed in a counter-example."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from attnspec.certify.conventions.literals import array_literal, stored, stored_raw
from attnspec.pyspec.calls.formats import FORMATS


@dataclass(frozen=True, eq=False)
class Leaf:
    """A tensor by its values. array: in the number type that it is stored in; device: torch's name of one."""

    array: np.ndarray
    device: str = "cpu"

    @property
    def dtype(self) -> str:
        """The name of the number type: "float32", "bfloat16", "bool", ..."""
        return self.array.dtype.name

    def literal(self) -> str:
        """A torch expression that makes this tensor, bit for bit."""
        moved = "" if self.device == "cpu" else f".to({self.device!r})"
        return array_literal(self.array, "torch") + moved


def make_leaf(values: np.ndarray, dtype: str, device: str = "cpu") -> Leaf:
    """Values of the type (a name of pyspec's FORMATS, or "bool"), finite or infinite, as a leaf."""
    return Leaf(stored(values, _type(dtype)), device)


def raw_leaf(values: np.ndarray, dtype: str, device: str = "cpu") -> Leaf:
    """Any values as a leaf, rounded to the nearest of that type (a name of pyspec's FORMATS or of numpy)."""
    return Leaf(stored_raw(values, _type(dtype)), device)


def _type(name: str) -> np.dtype:
    return FORMATS[name].dtype if name in FORMATS else np.dtype(name)


# What a program may tell besides its tensors: inputs that were overwritten, or number types and devices.
Report = Literal["overwritten", "types"]

# All bytes behind a tensor: those around a padded or offset view belong to somebody else.
_MEMORY = """def memory(tensor):
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.detach().untyped_storage())
"""
_OVERWRITTEN = "[n for n, (now, then) in before.items() if not torch.equal(now, then)]"
_TYPES = (
    "{n: (str(t.dtype).removeprefix('torch.'), t.device == query.device) for n, t in tensors.items() if t is not None}"
)


@dataclass(frozen=True, eq=False)
class Program:
    """One run of a subject as statements: the same text is executed by the run and printed in a counter-example.

    imports: statements that import modules. subject: statements that bring the subject into scope, which only the
    printed program needs. leaves: tensors by name, given to the run as they are and printed as exact literals.
    inputs: statements that lay leaves out in memory, build masks, ask for gradients. forward, backward: the two
    passes. tensors: what is returned, by the names of attnspec.pyspec.TENSORS, as expressions; None is "not there".
    watched: variables whose memory the two passes must not change. constants: numbers and shapes by name, so that the
    statements, which are compiled once, say the same for many calls. overwritten, types: expressions for the names of
    the watched variables that were changed, and for the number type of each tensor with whether it is on the inputs'
    device; the defaults look at torch tensors.
    """

    imports: tuple[str, ...]
    subject: tuple[str, ...]
    leaves: Mapping[str, Leaf]
    inputs: tuple[str, ...]
    forward: tuple[str, ...]
    backward: tuple[str, ...]
    tensors: Mapping[str, str]
    watched: tuple[str, ...] = ()
    constants: Mapping[str, Any] = field(default_factory=dict)
    overwritten: str | None = None
    types: str = _TYPES

    def source(self, name: str = "run", *, report: Report | None = None) -> str:
        """`def run(): ...`, which returns the tensors by name; it needs `imports` and `subject` before it.

        report: what it returns besides, under that name.
        """
        constants = [f"{n} = {value!r}" for n, value in self.constants.items()]
        leaves = [f"{n} = {leaf.literal()}" for n, leaf in self.leaves.items()]
        entries = "".join(f"    {n!r}: {expression},\n" for n, expression in self.tensors.items())
        returned = f"return {{\n{entries}}}"
        before: tuple[str, ...] = ()
        if report is not None:
            expression = self.types if report == "types" else self.overwritten or _OVERWRITTEN
            returned = f"tensors = {{\n{entries}}}\nreturn {{**tensors, {report!r}: {expression}}}"
        if report == "overwritten" and self.overwritten is None:
            pairs = ", ".join(f"{n!r}: memory({n})" for n in self.watched)
            before = (_MEMORY, f"before = {{n: (m, m.clone()) for n, m in {{{pairs}}}.items()}}")
        body = [*constants, *leaves, *self.inputs, *before, *self.forward, *self.backward, returned]
        return f"def {name}():\n" + textwrap.indent("\n".join(body), "    ") + "\n"


def file_of(programs: Mapping[str, Program], *, report: Report | None = None) -> str:
    """A Python file with one function for each program, by name; imports and subjects stand once, at the top."""
    functions = [program.source(name, report=report) for name, program in programs.items()]
    imports = list(dict.fromkeys(line for program in programs.values() for line in program.imports))
    subjects = list(dict.fromkeys(line for program in programs.values() for line in program.subject))
    text = "\n\n".join(functions)
    for module in ("zlib", "ml_dtypes"):
        if re.search(rf"\b{module}\.", text):
            imports.append(f"import {module}")
    plain = sorted(line for line in imports if line.startswith("import "))
    others = [line for line in imports if not line.startswith("import ")]
    head = ["\n".join([*plain, *others]), *(["\n".join(subjects)] if subjects else [])]
    return "\n\n".join(head) + "\n\n\n" + text


def number(expression: str, index: tuple[int, ...]) -> str:
    """A Python expression for one entry of a returned tensor, as the exact float; `expression` is that tensor."""
    return f"float({expression}[{', '.join(map(str, index))}])" if index else f"float({expression})"
