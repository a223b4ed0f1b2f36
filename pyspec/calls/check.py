"""The contract of a call: each check names the field, the value found and the mend."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from attnspec.pyspec.calls.errors import CallError, FamilyError
from attnspec.pyspec.calls.features import FEATURES, MODIFIERS, Part, length
from attnspec.pyspec.calls.fields import CallFields
from attnspec.pyspec.calls.formats import FORMATS, is_representable
from attnspec.pyspec.calls.score import Cosine, Dot, Family
from attnspec.pyspec.visibility import upper_left


def check(call: CallFields) -> None:
    """Raise CallError at the first part that breaks the contract: every part by itself, then what ties them."""
    _require(call.dtype in FORMATS, f"dtype = {call.dtype!r}: expected one of {', '.join(FORMATS)}")
    for name in ("query", "key", "value"):
        array = getattr(call, name)
        _require(
            isinstance(array, np.ndarray) and array.ndim == 4,
            f"{name} must be a numpy array with four axes [batch, heads, length, width]",
        )
    _require(
        isinstance(call.score, Family), f"score = {call.score!r}: expected a family of attnspec.pyspec.calls.score"
    )
    for feature in FEATURES:
        if feature.parts and feature.of(call):
            for part in feature.parts:
                # Each score family has some of the parameters; every other part that is looked for must be there.
                if (value := part.of(call)) is not None or part.root != "score":
                    _check_part(call, part, value)
    _check_rows(call)
    _check_encoding(call)
    _require(
        call.dropout is None or call.own_dropout is None,
        "own_dropout with dropout: the subject draws a multiplier or is given one, not both",
    )
    _check_score(call)


def _require(condition: bool, message: str, error: type[CallError] = CallError) -> None:
    if not condition:
        raise error(message)


def _check_part(call: CallFields, part: Part, value: Any) -> None:
    """The part by itself: its kind, its shape, and what its numbers must satisfy."""
    label, error = part.path, CallError
    if part.root == "score":
        label, error = f"{call.score.name}.{part.path.partition('.')[2]}", FamilyError
    if part.is_array:
        _check_array(call, part, value, label, error)
        holds = part.holds is None or part.holds(value)
        _require(holds, f"{label}: expected {part.expected}", error)
        return
    if part.kind == "heads":
        _check_heads(call, value)
        return
    right, expected = {
        "number": (isinstance(value, float) and math.isfinite(value), "a finite float"),
        "whole": (isinstance(value, int) and not isinstance(value, bool), "an integer"),
        "switch": (isinstance(value, bool), "True or False"),
        "name": (isinstance(value, str) and (not part.options or value in part.options), "a text"),
        "labels": (isinstance(value, dict), "texts by name"),
    }[part.kind]
    if part.options:
        expected = f"one of {', '.join(part.options)}"
    right = right and (part.holds is None or part.holds(value))
    _require(right, f"{label} = {value!r}: expected {part.expected or expected}", error)


def _check_array(call: CallFields, part: Part, array: Any, label: str, error: type[CallError]) -> None:
    wanted, word = (np.bool_, "boolean") if part.kind == "bits" else (np.float64, "float64")
    _require(isinstance(array, np.ndarray) and array.dtype == wanted, f"{label} must be a {word} numpy array", error)
    shape = [length(call, axis) for axis in part.axes]
    one_or = [part.shared.count(axis) > 0 for axis in part.axes]
    fits = array.ndim == len(shape) and all(
        n == m or (n == 1 and free) for n, m, free in zip(array.shape, shape, one_or, strict=True)
    )
    if not fits:
        expected = str(shape)
        if all(one_or):
            expected = f"four axes that broadcast to {shape}"
        elif any(one_or):
            alternatives = [[1 if free else n for n, free in zip(shape, one_or, strict=True)], shape]
            expected = " or ".join(dict.fromkeys(map(str, alternatives)))
        _require(False, f"{label} has shape {list(array.shape)}: expected {expected}", error)
    if part.kind == "bits":
        return
    _check_entries(label, array, np.isfinite(array), f": expected a finite value of {call.dtype}", error)
    if part.kind == "numbers":
        mend = f" is not a value of {call.dtype}: round it first with attnspec.pyspec.calls.formats.round_to"
        _check_entries(label, array, is_representable(call.dtype, array), mend, error)


def _check_entries(label: str, array: np.ndarray, good: np.ndarray, mend: str, error: type[CallError]) -> None:
    if not good.all():
        where = tuple(int(i) for i in np.argwhere(~good)[0])
        raise error(f"{label}{list(where)} = {float(array[where])!r}{mend}")


def _check_heads(call: CallFields, found: Any) -> None:
    query_heads, key_heads = call.axes.query_heads, call.axes.key_heads
    _require(isinstance(found, tuple), f"head_map = {found!r}: expected a tuple of key heads")
    _require(
        len(found) == query_heads,
        f"head_map has {len(found)} entries: expected one for each of {query_heads} query heads",
    )
    for h, target in enumerate(found):
        _require(
            isinstance(target, int) and 0 <= target < key_heads,
            f"head_map[{h}] = {target!r}: expected a key head in 0..{key_heads - 1}",
        )


def _check_rows(call: CallFields) -> None:
    """Rows that see no key, under the call's policy for them."""
    v = call.visibility
    if v.empty_rows == "reject":
        _no_row_without_key(np.logical_not(call.visible.any(axis=-1)), "sees no key and empty_rows is 'reject'")
    if v.empty_rows == "sanitize_then_zero_invalid_query":
        lost = np.logical_not(np.broadcast_to(v.mask, call.score_shape).any(axis=-1))
        if v.query_valid is not None:
            lost = lost & v.query_valid[:, None, :]
        _no_row_without_key(
            lost,
            "is a real query and sees no key: a temporary key never makes it legal; show it a key, or mark it in "
            "visibility.query_valid as not real",
        )
    if v.empty_rows == "tested_backend_contract":
        _require(
            call.backend.requested != "unspecified",
            "backend.requested = 'unspecified': a tested backend contract names the backend it was tested on",
        )


def _no_row_without_key(rows: np.ndarray, why: str) -> None:
    if rows.any():
        b, h, i = (int(n) for n in np.argwhere(rows)[0])
        raise CallError(f"row [batch {b}, head {h}, query {i}] {why}")


def _check_encoding(call: CallFields) -> None:
    """Does the mask encoding express all of the visibility, and of the bias?"""
    if call.encoding == "none":
        _require(bool(call.visible.all()), "encoding = 'none' hides nothing, but the mask hides a key")
    if call.encoding == "causal_flag":
        _, _, q, k = call.score_shape
        _require(
            bool((call.visible == upper_left(q, k)).all()),
            "encoding = 'causal_flag' means the upper-left causal mask, but the mask differs",
        )
    _require(
        call.bias is None or call.encoding == "additive",
        f"encoding = {call.encoding!r} carries no bias: use 'additive'",
    )


def _check_score(call: CallFields) -> None:
    """What the score family demands of the rest of the call."""
    family = call.score
    if isinstance(family, Dot):
        return
    for name in MODIFIERS:
        absent = getattr(call, name) is None
        _require(absent, f"{name} of a {family.name} call: only dot products carry one; leave it out", FamilyError)
    _require(
        call.scale is not None or family.has_default_scale,
        f"scale = None for the {family.name} family: key_width ** -0.5 belongs to dot products; "
        "give the multiplier (1.0 for none)",
        FamilyError,
    )
    if isinstance(family, Cosine) and family.zero_norm == "reject":
        for name in ("query", "key"):
            dead = ~(getattr(call, name) != 0).any(axis=-1)
            if dead.any():
                b, h, i = (int(n) for n in np.argwhere(dead)[0])
                raise FamilyError(
                    f"{name}[{b}, {h}, {i}] has length zero, so it has no direction: "
                    "choose cosine.zero_norm 'zero' or 'clamp', or leave the row out"
                )
