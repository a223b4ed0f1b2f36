"""A digest of everything in a call that may change a result, for random choices that a replay must repeat."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from attnspec.pyspec.calls.features import stored
from attnspec.pyspec.calls.fields import CallFields


def fingerprint(call: CallFields) -> bytes:
    """32 bytes that are equal for equal calls, also after a call was written as JSON and read again.

    What a call does not have is left out, so that calls keep their fingerprint when the feature table grows.
    """
    digest = hashlib.sha256()
    for part, value in stored(call, labels=False):
        for piece in (part.path.encode(), *_pieces(value)):
            # Lengths keep neighbours apart: ("a", "bc") is not ("ab", "c").
            digest.update(len(piece).to_bytes(8, "little"))
            digest.update(piece)
    return digest.digest()


def _pieces(value: Any) -> Iterator[bytes]:
    if isinstance(value, np.ndarray):
        yield repr((value.shape, value.dtype.str)).encode()
        yield np.ascontiguousarray(value).tobytes()
    elif isinstance(value, float):
        # Also numpy's own numbers, whose repr differs from that of the float that JSON gives back.
        yield float(value).hex().encode()
    else:
        yield repr(value).encode()
