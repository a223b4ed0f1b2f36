"""A digest of everything that a call says, for random choices that a replay must repeat."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from attnspec.pyspec.calls.call import AttentionCall
from attnspec.pyspec.calls.score import Dot


def fingerprint(call: AttentionCall) -> bytes:
    """32 bytes that are equal for equal calls, also after a call was written as JSON and read again."""
    digest = hashlib.sha256()
    given = {f.name: getattr(call, f.name) for f in fields(AttentionCall)}
    if isinstance(call.score, Dot):
        del given["score"]
    else:
        given["family"] = call.score.name
    if call.own_dropout is None:
        del given["own_dropout"]
    for part in _said(given):
        # Lengths keep neighbours apart: ("a", "bc") is not ("ab", "c").
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()


def _said(value: Any) -> Iterator[bytes]:
    if isinstance(value, np.ndarray):
        yield repr((value.shape, value.dtype.str)).encode()
        yield np.ascontiguousarray(value).tobytes()
    elif is_dataclass(value):
        for field in fields(value):
            yield field.name.encode()
            yield from _said(getattr(value, field.name))
    elif isinstance(value, Mapping):
        for key in sorted(value):
            yield str(key).encode()
            yield from _said(value[key])
    elif isinstance(value, (list, tuple)):
        yield str(len(value)).encode()
        for item in value:
            yield from _said(item)
    elif isinstance(value, float):
        # Also numpy's own numbers, whose repr differs from that of the float that JSON gives back.
        yield float(value).hex().encode()
    else:
        yield repr(value.item() if isinstance(value, np.generic) else value).encode()
