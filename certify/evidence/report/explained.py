"""An explanation in plain text: each tensor's worst entry, the trace of its row, and the first stage that leaves."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from attnspec.certify.evidence.counterexample import observed_from
from attnspec.certify.evidence.explanation import Explanation
from attnspec.certify.evidence.numbers import decimal
from attnspec.certify.evidence.report.text import observed_lines, trial_lines
from attnspec.pyspec import AttentionCall, Judgement
from attnspec.pyspec.oracle.trace import Trace, trace

# This many keys of a row are printed, those that contribute most.
SHOWN = 12

# Tensors whose entries can be traced back to a row or a column.
EXPLAINED = ("output", "lse", "grad_query", "grad_key", "grad_value", "grad_bias", "grad_sink")


def explanation(found: Explanation) -> str:
    """The whole text: call, verdict of every tensor, the row's trace, and the first stage that leaves."""
    return "\n".join(_lines(found))


def _lines(found: Explanation) -> Iterator[str]:
    one, outcome, call = found.asked, found.outcome, found.asked.trial.call
    yield f"explain  {one.about}"
    yield f"subject  {one.subject} on {one.device}, {call.dtype}, ledger {found.ledger.name}"
    yield from trial_lines(one.trial)
    if outcome.skip is not None:
        yield f"skipped  nothing could be tested: {outcome.skip.text}"
        return
    if outcome.text is not None:
        yield f"got      {outcome.text}"
    if outcome.failures:
        return
    for judged in outcome.judgements:
        yield f"tensor   {judged.tensor} {'OUTSIDE' if judged.outside else judged.state}"
        if judged.index is not None:
            yield from (f"         {line}" for line in observed_lines(observed_from(judged), call.dtype))
    worst = outcome.worst
    if worst is not None and worst.index is not None and worst.tensor in EXPLAINED:
        yield from row_lines(call, worst)
    yield from _stage_lines(found)


def _stage_lines(found: Explanation) -> Iterator[str]:
    if not found.shows_stages:
        yield "stages   the subject shows none (a method `stages(call)` would)"
    elif found.leaving is None:
        yield "stages   every stage shown is inside"
    else:
        left = found.leaving
        label = trace(found.asked.trial.call).label(left.stage, left.index)
        yield f"stages   first outside: {label}"
        yield f"         got {decimal(left.observed)}, exact {decimal(left.exact)}"
        yield f"         allowed [{decimal(left.lower)}, {decimal(left.upper)}]"


def row_lines(call: AttentionCall, judged: Judgement) -> Iterator[str]:
    """The exact trace of the row, or of the column, that an entry comes from, with what each key or query adds."""
    with np.errstate(all="ignore"):
        found, index = trace(call), judged.index
        assert index is not None
        if judged.tensor in ("grad_key", "grad_value"):
            yield from _column(found, judged.tensor, index)
            return
        if judged.tensor == "grad_sink":
            yield f"column   sink of head {index[0]}: every row adds its score gradient there"
            return
        row = tuple(min(n, size - 1) for n, size in zip(index[:3], call.score_shape, strict=False))
        yield from _row(found, judged.tensor, row, index)


def _row(found: Trace, tensor: str, row: tuple[int, ...], index: tuple[int, ...]) -> Iterator[str]:
    b, h, i = row
    call, seen = found.call, found.visible[row]
    g = call.head_map[h]
    top, mass = (_short(found[stage][row][0]) for stage in ("row_max", "denominator"))
    yield f"row      batch {b}, head {h} (key head {g}), {found.query_ids[i]}"
    yield f"         sees {int(seen.sum())} of {len(seen)} keys, row max {top}, denominator {mass}"
    weights, scores = found["weights"][row], found["biased"][row]
    if tensor == "grad_query":
        what, part = (
            f"adds to grad_query[…, {index[3]}]",
            found["scaled_grad"][row] * _rows(found, call.key)[b, g, :, index[3]],
        )
    elif tensor == "grad_bias":
        what, part = "score gradient", found["scores_grad"][row]
    elif tensor == "lse":
        what, part = "exp(score - row max)", found["exp"][row]
    else:
        what, part = (
            f"adds to output[…, {index[3]}]",
            found["consumed"][row] * _rows(found, call.value)[b, g, :, index[3]],
        )
    yield f"         {'key':<10} {'score':>14} {'weight':>14} {'multiplier':>11} {what:>26}"
    part = np.where(seen, part, 0.0)
    for j in _most(np.where(seen, np.maximum(np.abs(part), weights), -1.0)):
        if not seen[j]:
            yield f"         {found.key_ids[j]:<10} {_short(scores[j]):>14} {'hidden':>14}"
            continue
        multiplier = found["multiplier"][row][j]
        yield (
            f"         {found.key_ids[j]:<10} {_short(scores[j]):>14} {_short(weights[j]):>14} "
            f"{_short(multiplier):>11} {_short(part[j]):>26}"
        )
    yield from _rest(len(seen))
    yield f"         {'sum':<10} {'':>14} {_short(weights.sum()):>14} {'':>11} {_short(part.sum()):>26}"


def _column(found: Trace, tensor: str, index: tuple[int, ...]) -> Iterator[str]:
    """What every query that reads this key adds to its gradient."""
    call = found.call
    b, g, j, n = index
    heads = [h for h, target in enumerate(call.head_map) if target == g]
    by_value = tensor == "grad_value"
    stage, rows = ("consumed", call.grad_output) if by_value else ("scaled_grad", call.query)
    assert rows is not None
    yield f"column   batch {b}, key head {g}, {found.key_ids[j]}, read by heads {heads}"
    yield f"         {'query':<18} {stage:>14} {f'adds to {tensor}[…, {n}]':>26}"
    entries = [(h, i) for h in heads for i in range(call.axes.queries)]
    parts = np.array([found[stage][b, h, i, j] * rows[b, h, i, n] for h, i in entries])
    for at in _most(np.abs(parts)):
        h, i = entries[at]
        what = _short(found[stage][b, h, i, j]) if found.visible[b, h, i, j] else "hidden"
        yield f"         {f'head {h}, {found.query_ids[i]}':<18} {what:>14} {_short(parts[at]):>26}"
    yield from _rest(len(entries))
    yield f"         {'sum':<18} {'':>14} {_short(parts.sum()):>26}"


def _rows(found: Trace, rows: np.ndarray) -> np.ndarray:
    """Key or value rows, with the sink's zero row where there is one."""
    return rows if len(found.key_ids) == rows.shape[2] else np.pad(rows, ((0, 0), (0, 0), (0, 1), (0, 0)))


def _most(sizes: np.ndarray) -> list[int]:
    """Positions of the largest entries, in their order."""
    largest = np.argsort(-np.nan_to_num(sizes, nan=np.inf), kind="stable")[:SHOWN]
    return sorted(int(n) for n in largest)


def _rest(count: int) -> Iterator[str]:
    if count > SHOWN:
        yield f"         … {count - SHOWN} more"


def _short(value: float) -> str:
    return f"{float(value):.9g}"
