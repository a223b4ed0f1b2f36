"""Predicates over indices, alone and with a map of blocks that need no look or no work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnspec.pyspec.calls.encodings.base import Encoding, Request, Shape

MaskMod = Callable[[Any, Any, Any, Any], Any]


@dataclass(frozen=True, eq=False)
class TableMod:
    """A predicate (b, h, q_index, kv_index) -> visible that looks it up; takes numbers or arrays of indices."""

    table: np.ndarray

    def __call__(self, b: Any, h: Any, q_index: Any, kv_index: Any) -> Any:
        return self.table[b, h, q_index, kv_index]


@dataclass(frozen=True, eq=False)
class BlockMask:
    """Blocks of `size` (queries, keys): full ones are visible whole, partial ones ask `mask_mod`, others are skipped.

    A block that reaches beyond the last query or key is never full.
    full and partial: [B, Hq, query blocks, key blocks] boolean, never both true.
    """

    size: tuple[int, int]
    full: np.ndarray
    partial: np.ndarray
    mask_mod: MaskMod


def evaluate(mask_mod: MaskMod, shape: Shape) -> np.ndarray:
    """The relation that a predicate says at every (b, h, i, j)."""
    index = np.ogrid[tuple(slice(0, n) for n in shape)]
    if 0 in shape:
        return np.zeros(shape, dtype=bool)
    if isinstance(mask_mod, TableMod):
        return np.broadcast_to(mask_mod(*index), shape)
    # A predicate written for single indices may use `and` and `if`.
    said = np.vectorize(lambda b, h, i, j: bool(mask_mod(int(b), int(h), int(i), int(j))), otypes=[bool])
    return np.broadcast_to(said(*index), shape)


def _predicate(r: Request) -> MaskMod:
    given: MaskMod | None = r.options.get("predicate")
    return TableMod(np.array(r.visible)) if given is None else given


def _blocks(r: Request) -> BlockMask:
    size = r.options.get("block_size", 128)
    rows, columns = (size, size) if isinstance(size, int) else size
    b, h, q, k = r.shape
    across, down = -(-k // columns), -(-q // rows)
    visible = np.zeros((b, h, down * rows, across * columns), dtype=bool)
    visible[:, :, :q, :k] = r.visible
    tiled = visible.reshape(b, h, down, rows, across, columns)
    # A block that reaches beyond the last query or key is never full: what lies beyond must not be read.
    any_seen, all_seen = np.asarray(tiled.any(axis=(3, 5))), np.asarray(tiled.all(axis=(3, 5)))
    return BlockMask((rows, columns), all_seen, any_seen & ~all_seen, _predicate(r))


def _read_blocks(payload: BlockMask, shape: Shape) -> np.ndarray:
    _, _, q, k = shape

    def spread(blocks: np.ndarray) -> np.ndarray:
        return np.repeat(np.repeat(blocks, payload.size[0], axis=2), payload.size[1], axis=3)[:, :, :q, :k]

    return spread(payload.full) | (spread(payload.partial) & evaluate(payload.mask_mod, shape))


FLEX_MASK_MOD = Encoding(
    name="flex_mask_mod",
    polarity="true_means_visible",
    exact=True,
    expresses="any relation, as a predicate of (b, h, q_index, kv_index)",
    make=_predicate,
    read=evaluate,
    options=("predicate",),
)
FLEX_BLOCK_MASK = Encoding(
    name="flex_block_mask",
    polarity="true_means_visible",
    exact=True,
    expresses="any relation, as full, partial and skipped blocks with a predicate for the partial ones",
    make=_blocks,
    read=_read_blocks,
    options=("block_size", "predicate"),
)
