"""Subjects that take an AttentionCall: the call is written as JSON, and the subject runs it by itself."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from attnspec.certify.conventions.literals import array_literal
from attnspec.certify.conventions.program import Program
from attnspec.certify.conventions.scope import absolute, path_statements
from attnspec.pyspec import AttentionCall, call_to_json
from attnspec.pyspec.calls.features import DIFFERENTIATED


def loaded_program(
    call: AttentionCall, raw: Mapping[str, np.ndarray] | None, spec: str, device: str = "cpu"
) -> Program:
    """A run of the subject of that name, `path.py:attr` or `module:attr`."""
    options = "" if device == "cpu" else f", {device!r}"
    return call_program(
        call,
        raw,
        f"load_subject({absolute(spec)!r}{options})",
        imports=("from attnspec.certify.subjects import load_subject",),
        before=path_statements(spec),
    )


def call_program(
    call: AttentionCall,
    raw: Mapping[str, np.ndarray] | None,
    subject: str,
    *,
    imports: tuple[str, ...],
    before: tuple[str, ...] = (),
) -> Program:
    """A run of a subject, given as an expression, on a call and raw arrays in place of some of its tensors.

    imports, before: what the expression needs. Tensors that the subject does not return come out as None.
    """
    names = ["output", "lse"]
    if call.dropout is not None and call.dropout.returned_weights != "none":
        names.append("weights")
    if call.grad_output is not None:
        names += [f"grad_{n}" for n in DIFFERENTIATED if getattr(call, n) is not None]
        names += [f"grad_{n}" for n in call.score.parameters()]
    numpy = () if raw is None else ("import numpy as np",)
    inputs = [f"call = call_from_json({_text(call_to_json(call))})"]
    if raw is not None:
        arrays = "".join(f"    {n!r}: {array_literal(np.asarray(a), 'np')},\n" for n, a in raw.items())
        inputs.append(f"raw = {{\n{arrays}}}")
    return Program(
        (*numpy, "from attnspec.pyspec import call_from_json", *imports),
        before,
        {},
        tuple(inputs),
        (
            f"subject = {subject}",
            "device = subject.device.partition(':')[0]",
            f"seen = subject.run(call{'' if raw is None else ', raw'})",
            "assert seen.error is None, seen.error",
        ),
        (),
        {name: f"seen.tensors.get({name!r})" for name in names},
        overwritten="list(seen.changed_inputs)",
        types="{n: (seen.dtypes.get(n), seen.devices.get(n, device) == device) for n in tensors}",
    )


def _text(json: str) -> str:
    """A document as a literal over several lines; indenting it changes nothing between its tokens."""
    return repr(json) if "'''" in json else f"r'''{json}'''"
