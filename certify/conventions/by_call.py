"""Subjects that take an AttentionCall: the call is written as JSON, and the subject runs it by itself."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from attnspec.certify.conventions.literals import array_literal
from attnspec.certify.conventions.program import Program
from attnspec.pyspec import AttentionCall, call_to_json
from attnspec.pyspec.calls.features import DIFFERENTIATED

LOADER = "from attnspec.certify.subjects import load_subject"


def loaded(spec: str, device: str = "cpu") -> str:
    """The expression that loads the subject of that name or path."""
    return f"load_subject({spec!r})" if device == "cpu" else f"load_subject({spec!r}, {device!r})"


def call_program(
    call: AttentionCall,
    raw: Mapping[str, np.ndarray] | None,
    subject: str,
    *,
    imports: tuple[str, ...] = (LOADER,),
    also: tuple[str, ...] = (),
) -> Program:
    """A run of a subject, given as an expression, on a call and raw arrays in place of some of its tensors.

    also: tensors that it may return besides output, lse and the gradients of the call's tensors. Those that it does
    not return come out as None.
    """
    names = ["output", "lse", *also]
    if call.grad_output is not None:
        names += [f"grad_{n}" for n in DIFFERENTIATED if getattr(call, n) is not None]
    numpy = () if raw is None else ("import numpy as np",)
    inputs = [f"call = call_from_json({_text(call_to_json(call))})"]
    if raw is not None:
        arrays = "".join(f"    {n!r}: {array_literal(np.asarray(a), 'np')},\n" for n, a in raw.items())
        inputs.append(f"raw = {{\n{arrays}}}")
    return Program(
        (*numpy, "from attnspec.pyspec import call_from_json", *imports),
        (),
        {},
        tuple(inputs),
        (
            f"seen = {subject}.run(call{'' if raw is None else ', raw'})",
            "assert seen.error is None, seen.error",
        ),
        (),
        {name: f"seen.tensors.get({name!r})" for name in names},
        overwritten="list(seen.changed_inputs)",
    )


def _text(json: str) -> str:
    """A document as a literal over several lines; indenting it changes nothing between its tokens."""
    return repr(json) if "'''" in json else f"r'''{json}'''"
