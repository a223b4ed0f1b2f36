"""Refutations and calls in plain text, as a person reads them in a terminal."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from attnspec.certify.evidence.counterexample import CounterExample, Number, Observed, in_words
from attnspec.certify.evidence.numbers import decimal, hex_word, ratio_text, ulps
from attnspec.certify.evidence.proofs import ProofRecord
from attnspec.certify.trials.snippet import allowed
from attnspec.certify.trials.trial import Trial
from attnspec.pyspec import AttentionCall
from attnspec.pyspec.calls.features import arrays, stored
from attnspec.pyspec.calls.formats import FORMATS

# Arrays of up to this many entries are shown whole.
WHOLE = 24

# A snippet of more characters than this is named, not printed.
LONGEST_SNIPPET = 6000


# One bug breaks many claims: this many refutations are printed whole, the others by name.
SHOWN = 3


def refutations(records: Sequence[CounterExample], proofs: ProofRecord | None = None, place: str = "") -> str:
    """The most telling refutations whole, simplest first, and a line for each of the others.

    `place`: options that `certify replay` needs to find them, such as " --out DIR".
    """
    shown = telling(records)
    parts = [refutation(record, proofs, place) for record in shown]
    rest = [r for r in records if all(r.id != s.id for s in shown)]
    if rest:
        width = max(len(f"{r.property} ({r.dtype})") for r in rest)
        lines = (f"  {f'{r.property} ({r.dtype})':<{width}}  certify replay {r.id}{place}" for r in rest)
        parts.append("\n".join(("Also refuted:", *lines)))
    return "\n\n".join(parts)


def place_of(out: Path) -> str:
    """The options with which `certify replay` finds the counter-examples of an evidence folder."""
    return "" if out.resolve().is_relative_to(Path("cert").resolve()) else f" --out {shlex.quote(str(out))}"


def telling(records: Sequence[CounterExample]) -> list[CounterExample]:
    """For each way of failing, the refutation with the smallest call; at most SHOWN of them."""
    best: dict[tuple[str, ...], CounterExample] = {}
    for record in records:
        known = best.get(_way(record))
        if known is None or _size(record) < _size(known):
            best[_way(record)] = record
    return sorted(best.values(), key=_size)[:SHOWN]


def _size(record: CounterExample) -> int:
    trial = record.failing_trial()
    return sum(a.size for a in (*(a for _, a in arrays(trial.call, "numbers")), *trial.raw.values()))


def _way(record: CounterExample) -> tuple[str, ...]:
    if record.failures:
        return ("failure", *sorted({f.kind for f in record.failures}))
    wrong = {seen.tensor for seen in record.observed if not seen.inside}
    return ("output",) if "output" in wrong else ("not output",)


def refutation(record: CounterExample, proofs: ProofRecord | None = None, place: str = "") -> str:
    """Everything about a refutation, in fixed order: claim, subject, run, numbers, theorem, snippet, replay."""
    return "\n".join((*_refutation(record, proofs), f"certify replay {record.id}{place}"))


def _refutation(record: CounterExample, proofs: ProofRecord | None) -> Iterator[str]:
    yield f"REFUTED  {record.property}: {record.claim}"
    yield f"subject  {record.subject} on {record.device}, {record.dtype}, ledger {record.ledger.get('name')}"
    yield from trial_lines(record.failing_trial(), "smallest call found" if record.reduced else "call (not reduced)")
    words = in_words(record)
    if words is not None:
        yield f"got      {words}"
    for seen in record.observed:
        if not seen.inside:
            yield from observed_lines(seen, record.dtype)
    yield f"theorem  {theorem_line(record, proofs)}"
    if len(record.snippet) > LONGEST_SNIPPET:
        yield f"snippet  {len(record.snippet)} characters long: counterexamples/{record.id}.py"
    else:
        yield "snippet"
        yield ""
        yield from record.snippet.rstrip("\n").splitlines()
        yield ""


def trial_lines(trial: Trial, size: str = "") -> Iterator[str]:
    """The run, argument for argument, and the call whose exact values count where that is another one."""
    call = trial.call
    yield f"call     {size}{': ' if size else ''}{shape_line(call)}"
    yield from (f"         {line}" for line in call_lines(call))
    for name, array in trial.raw.items():
        dtype = call.dtype if array.dtype == np.float64 else array.dtype.name
        yield f"         in place of {array_line(name, array, dtype)}"
    for what, other in (("against  the exact values of ", trial.against), ("after    a run of ", trial.other)):
        if other is not None and other is not call:
            yield f"{what}{shape_line(other)}"
            yield from (f"         {line}" for line in call_lines(other, beside=call))


def theorem_line(record: CounterExample, proofs: ProofRecord | None = None) -> str:
    """The theorem that licenses the claim, and whether it was compiled here."""
    if record.theorem is None:
        return "none: the claim is about floating point or the interface, and is tested only"
    if record.theorem_checked_here:
        under = "" if proofs is None or proofs.toolchain is None else f" under {proofs.toolchain}"
        return f"{record.theorem}, compiled here{under}"
    if proofs is not None and proofs.compiled == "here":
        return f"{record.theorem}, not among the theorems compiled here"
    return f"{record.theorem}, not compiled here (`make proofs` does it)"


def shape_line(call: AttentionCall) -> str:
    """The call's sizes and modes on one line."""
    a = call.axes
    parts = [
        f"batch {a.batch}",
        f"heads {a.query_heads}" if call.head_map == tuple(range(a.key_heads)) else f"heads {list(call.head_map)}",
        f"queries {a.queries}",
        f"keys {a.keys}",
        f"widths {a.key_width}/{a.value_width}",
        f"mask {call.encoding}",
    ]
    numbers = ((part, x) for part, x in stored(call) if part.kind == "number")
    parts += [f"{part.path} {decimal(x)}" for part, x in numbers if part.path == part.root]
    if call.score.name != "dot":
        parts.append(f"{call.score.name} scores")
    if call.own_dropout is not None:
        parts.append(f"dropout_p {decimal(call.own_dropout.probability)}, seed {call.own_dropout.seed}")
    if call.grad_output is None:
        parts.append("no gradients")
    layouts = {n: getattr(call.layout, n) for n in ("query", "key", "value", "mask")}
    parts += [f"{name} laid out {kind}" for name, kind in layouts.items() if kind != "contiguous"]
    return ", ".join(parts)


def call_lines(call: AttentionCall, beside: AttentionCall | None = None) -> Iterator[str]:
    """Every array of the call, decimal and hex; long ones abbreviated. Only what differs from the call `beside` it."""
    for part, array in arrays(call, "numbers"):
        if beside is None or not _equal(array, part.of(beside)):
            yield array_line(part.path.rpartition(".")[2], array, call.dtype)
    visible = call.visible
    if beside is not None and _equal(visible, beside.visible):
        pass
    elif visible.all():
        yield "visible      everything"
    else:
        yield f"visible      {_mask(visible)}"
    multiplier = call.multiplier
    if multiplier is not None and (beside is None or not _equal(multiplier, beside.multiplier)):
        yield array_line("multiplier", np.ascontiguousarray(multiplier), "float64")


def _equal(a: np.ndarray, b: np.ndarray | None) -> bool:
    return b is not None and np.array_equal(a, b)


def array_line(name: str, array: np.ndarray, dtype: str) -> str:
    """One array: shape, decimals, and bit patterns when it is small."""
    shape = "×".join(str(n) for n in array.shape)
    flat = array.ravel()
    head = f"{name:<12} {shape}"
    if flat.size == 0:
        return f"{head}  (empty)"
    if flat.size > 8 and (flat == flat[0]).all():
        return f"{head}  all {_short(flat[0])}  hex {hex_word(dtype, flat[0])}"
    if flat.size <= WHOLE:
        words = " ".join(hex_word(dtype, x) for x in flat)
        return f"{head}  {_nested(array)}  hex {words}"
    shown = ", ".join(_short(x) for x in flat[:6])
    return f"{head}  [{shown}, … {flat.size - 6} more], largest size {_short(float(np.abs(flat).max()))}"


def _nested(array: np.ndarray) -> str:
    # Leading axes of length one say nothing.
    while array.ndim > 1 and array.shape[0] == 1:
        array = array[0]
    if array.ndim == 0:
        return _short(float(array))
    return "[" + ", ".join(_nested(x) for x in array) + "]"


def _short(value: float) -> str:
    value = float(value)
    return str(int(value)) if math.isfinite(value) and value == int(value) and abs(value) < 1e6 else repr(value)


def _mask(visible: np.ndarray) -> str:
    shape = "×".join(str(n) for n in visible.shape)
    rows = visible.reshape(-1, visible.shape[-1]) if visible.size else visible.reshape(0, 0)
    if visible.size > 4 * WHOLE or visible.size == 0:
        return f"{shape}  {int(visible.sum())} of {visible.size} pairs"
    return f"{shape}  " + " ".join("".join("1" if x else "0" for x in row) for row in rows)


def observed_lines(seen: Observed, dtype: str) -> Iterator[str]:
    """Got, exact, allowed, ratio and units in the last place of one tensor."""
    got, lower, upper, bound = (
        float.fromhex(n.hex) for n in (seen.observed, seen.exact_lower, seen.exact_upper, seen.bound)
    )
    where = f"{seen.tensor}[{', '.join(map(str, seen.index))}]"
    yield f"got      {where} = {_both(seen.observed)}"
    exact = _both(seen.exact_lower) if lower == upper else f"{seen.exact_lower.decimal} … {seen.exact_upper.decimal}"
    yield f"exact    {exact}"
    ends = allowed((lower, upper), bound, got, not seen.inside)
    yield f"allowed  [{', '.join(map(decimal, ends))}]"
    distance = max(abs(got - lower), abs(got - upper)) if math.isfinite(got) else math.inf
    fmt = dtype if dtype in FORMATS else "float64"
    count = ulps(fmt, distance, max(abs(lower), abs(upper)))
    steps = "not finite" if count is None else f"{count:.4g} ulp of {fmt}"
    more = f", {seen.outside_count} of {seen.size} entries outside" if seen.size > 1 else ""
    yield f"error    {ratio_text(seen.worst)} × the bound, {steps}{more}"


def _both(number: Number) -> str:
    return number.decimal if number.hex in ("inf", "-inf", "nan") else f"{number.decimal} ({number.hex})"
