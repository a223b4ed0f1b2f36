"""Where queries and keys sit: padded batches, cache buffers, packed rows, and trees of candidate tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attnspec.pyspec.calls.masks.handoff import VisibilityError


def _lengths(field: str, lengths: Sequence[int] | np.ndarray, size: int | None = None) -> np.ndarray:
    found = np.atleast_1d(np.asarray(lengths))
    if found.ndim != 1 or (not np.issubdtype(found.dtype, np.integer) and found.size):
        raise VisibilityError(f"{field} = {lengths!r}: expected a list of whole numbers, one a sequence")
    found = found.astype(np.int64)
    if (found < 0).any() or (size is not None and (found > size).any()):
        limit = "" if size is None else f" and at most {size}"
        raise VisibilityError(f"{field} = {found.tolist()}: expected lengths of at least 0{limit}")
    return found


def right_padded(lengths: Sequence[int] | np.ndarray, size: int) -> np.ndarray:
    """Validity [B, size] of rows whose real tokens come first."""
    return np.arange(size)[None, :] < _lengths("lengths", lengths, size)[:, None]


def left_padded(lengths: Sequence[int] | np.ndarray, size: int) -> np.ndarray:
    """Validity [B, size] of rows whose real tokens come last."""
    return np.arange(size)[None, :] >= size - _lengths("lengths", lengths, size)[:, None]


def cache_slots(filled: Sequence[int] | np.ndarray, slots: int) -> np.ndarray:
    """Validity [B, slots] of a static cache buffer: slots behind the filled ones were never written."""
    return right_padded(filled, slots)


def positions_of(valid: np.ndarray) -> np.ndarray:
    """Positions [B, N] that count real tokens only (0 for padding): what a padded row's tokens had alone."""
    return np.maximum(np.cumsum(np.asarray(valid, dtype=np.int64), axis=-1) - 1, 0)


@dataclass(frozen=True, eq=False)
class Packed:
    """Sequences laid end to end in one row: segment ids, positions that start again, and boundaries."""

    segment: np.ndarray
    position: np.ndarray
    cu_seqlens: tuple[int, ...]

    @property
    def pairs(self) -> dict[str, int]:
        """Query-key pairs by schedule: padded to the longest, each sequence alone, and all tokens with all."""
        lengths = np.diff(self.cu_seqlens)
        longest = int(lengths.max(initial=0))
        return {
            "padded": len(lengths) * longest**2,
            "independent": int((lengths**2).sum()),
            "unrestricted": int(lengths.sum()) ** 2,
        }


def packed(lengths: Sequence[int] | np.ndarray) -> Packed:
    """The layout of packed sequences of these lengths."""
    found = _lengths("lengths", lengths)
    ends = np.concatenate([[0], np.cumsum(found)])
    segment = np.repeat(np.arange(len(found)), found)
    return Packed(segment, np.arange(int(ends[-1])) - ends[segment], tuple(int(n) for n in ends))


def ancestors(parents: Sequence[int] | np.ndarray) -> np.ndarray:
    """[T, T] boolean: token i of a candidate tree sees token j when j is i itself or an ancestor of i.

    parents[i] is the parent's index, -1 for a root; parents come before their children.
    """
    found = np.asarray(parents, dtype=np.int64)
    sees = np.zeros((found.size, found.size), dtype=bool)
    for i, parent in enumerate(found):
        if not -1 <= parent < i:
            raise VisibilityError(
                f"parents[{i}] = {int(parent)}: expected -1 for a root, or an earlier token, 0 to {i - 1}"
            )
        if parent >= 0:
            sees[i] = sees[parent]
        sees[i, i] = True
    return sees
