"""Probing calls that differ in who sees whom: masks, causal regions, windows, segments, biases."""

from __future__ import annotations

import torch

from .calls import ZooCall
from .probing import WIDE, Probes, operands_of, probe, random_mask, values

MASKS: Probes = {}


@probe(MASKS)
def whole_tiles() -> ZooCall:
    """Lengths that are whole tiles, square, with a mask that is not symmetric."""
    return ZooCall(**operands_of(1, (2, 2), 32, 32, 4, 4), attn_mask=random_mask(7, 32, 32))


@probe(MASKS)
def causal_tall() -> ZooCall:
    """Upper-left causal, more keys than queries, grouped heads whose rows straddle tiles."""
    return ZooCall(
        **operands_of(1, (4, 2), 21, 40, 4, 5), bias=values(6, 4, 21, 40),
        options={"is_causal": True, "enable_gqa": True},
    )  # fmt: skip


@probe(MASKS)
def causal_more_queries_than_keys() -> ZooCall:
    """Lower-right causal with fewer keys than queries: leading rows are empty."""
    return ZooCall(**operands_of(1, (1, 1), 21, 5, 4, 4), options={"is_causal": True, "causal": "lower_right"})


@probe(MASKS)
def causal_and_mask() -> ZooCall:
    """Causal rows whose legal keys a mask hides; a second batch hides others."""
    mask = torch.ones(2, 1, 18, 18, dtype=torch.bool)
    mask[0, :, 3, :5] = False
    mask[1, :, 2, :4] = False
    return ZooCall(**operands_of(2, (2, 2), 18, 18, 4, 4), attn_mask=mask, options={"is_causal": True})


@probe(MASKS)
def long_causal() -> ZooCall:
    """More than 128 rows and keys, nine key tiles and more."""
    return ZooCall(**operands_of(1, (1, 1), 132, 150, 2, 2), options={"is_causal": True})


@probe(MASKS)
def long_full() -> ZooCall:
    """Ten key tiles without causal."""
    return ZooCall(**operands_of(1, (1, 1), 3, 150, 2, 2))


@probe(MASKS)
def one_query_causal() -> ZooCall:
    """A single query sees key 0 alone under upper-left causal."""
    return ZooCall(**operands_of(1, (1, 1), 1, 5, 3, 3), options={"is_causal": True})


@probe(MASKS)
def windowed() -> ZooCall:
    """A window on a lower-right diagonal."""
    return ZooCall(**operands_of(1, (1, 1), 40, 70, 4, 4), options={"window": (5, 2), "causal": "lower_right"})


@probe(MASKS)
def window_of_zero() -> ZooCall:
    """Each row sees its own key only."""
    return ZooCall(**operands_of(1, (1, 1), 20, 20, 4, 4), options={"window": (0, 0)})


@probe(MASKS)
def packed() -> ZooCall:
    """Packed segments that differ between batches and change inside a tile."""
    queries = torch.tensor([[0] * 5 + [1] * 15, [0] * 11 + [1] * 9])
    keys = torch.tensor([[0] * 7 + [1] * 13, [0] * 3 + [1] * 17])
    return ZooCall(**operands_of(2, (1, 1), 20, 20, 4, 4), options={"segments": (queries, keys)})


@probe(MASKS)
def one_column_mask() -> ZooCall:
    """A mask that is one value for a whole row."""
    return ZooCall(**operands_of(1, (1, 1), 18, 18, 4, 4), attn_mask=random_mask(5, 1, 1, 18, 1))


@probe(MASKS)
def key_padding() -> ZooCall:
    """A mask that is one line of keys for each batch."""
    mask = torch.arange(20)[None] < torch.tensor([[7], [18]])
    return ZooCall(**operands_of(2, (2, 2), 19, 20, 4, 4), attn_mask=mask[:, None, None, :])


@probe(MASKS)
def mask_of_whole_tiles() -> ZooCall:
    """A mask constant on every tile."""
    mask = (torch.arange(32)[:, None] // 16) >= (torch.arange(32)[None, :] // 16)
    return ZooCall(**operands_of(1, (1, 1), 32, 32, 4, 4), attn_mask=mask)


@probe(MASKS)
def hidden_first_tile() -> ZooCall:
    """The first key tile is hidden from all rows, then visible keys; later tiles hidden in other rows."""
    mask = torch.ones(1, 1, 18, 70, dtype=torch.bool)
    mask[..., :16] = False
    mask[..., 3:7, 16:50] = False
    mask[..., 7:9, 48:] = False
    return ZooCall(**operands_of(1, (2, 2), 18, 70, 4, 4), attn_mask=mask)


@probe(MASKS)
def additive_mask() -> ZooCall:
    """An additive mask with illegal entries and an empty row, of one batch and one head."""
    bias = values(6, 1, 1, 18, 20).masked_fill(~random_mask(5, 1, 1, 18, 20), -torch.inf)
    return ZooCall(**operands_of(2, (2, 2), 18, 20, 4, 4), attn_mask=bias)


@probe(MASKS)
def bias_of_every_axis() -> ZooCall:
    """A bias that varies over batch, head, row and key, on a rectangle with grouped heads."""
    return ZooCall(
        **operands_of(2, (6, 2), 18, 20, 4, 4), bias=values(6, 2, 6, 18, 20), attn_mask=random_mask(5, 2, 6, 18, 20),
        options={"enable_gqa": True},
    )  # fmt: skip


@probe(MASKS)
def hidden_giants() -> ZooCall:
    """The largest logits belong to hidden keys."""
    bias = torch.zeros(1, 1, 4, 20, dtype=WIDE)
    bias[..., 5] = 2048.0
    mask = torch.arange(20) != 5
    return ZooCall(**operands_of(1, (1, 1), 4, 20, 4, 4), bias=bias, attn_mask=mask)


@probe(MASKS)
def nan_in_hidden_keys() -> ZooCall:
    """NaN in a key and a value that no query may attend, one each."""
    call = ZooCall(**operands_of(1, (1, 1), 4, 20, 4, 4))
    key, value = call.key.clone(), call.value.clone()
    key[:, :, 5], value[:, :, 7] = torch.nan, torch.nan
    return ZooCall(
        query=call.query, key=key, value=value, grad=call.grad,
        attn_mask=(torch.arange(20) != 5) & (torch.arange(20) != 7),
    )  # fmt: skip


@probe(MASKS)
def trailing_empty_rows() -> ZooCall:
    """The last rows see no key."""
    mask = (torch.arange(6) < 4)[:, None].expand(6, 5)
    return ZooCall(**operands_of(1, (1, 1), 6, 5, 4, 4), attn_mask=mask)
