"""Small named calls that between them make every planted bug change a bit."""

from __future__ import annotations

from collections.abc import Callable

import torch

from .calls import ZooCall
from .operands import WIDE, half_dropped, operands_of, random_mask, values

PROBES: dict[str, Callable[[], ZooCall]] = {}


def probe(make: Callable[[], ZooCall]) -> Callable[[], ZooCall]:
    """Lists a call under its function's name."""
    PROBES[make.__name__] = make
    return make


@probe
def everything() -> ZooCall:
    """Grouped heads, causal lower-right, mask with empty rows, bias, dropout, own scale, partial tiles."""
    return ZooCall(
        **operands_of(2, (6, 2), 19, 37, 9, 11), attn_mask=random_mask(5, 2, 6, 19, 37), bias=values(6, 1, 6, 19, 37),
        multiplier=half_dropped(2, 6, 19, 37),
        options={"is_causal": True, "causal": "lower_right", "scale": 0.375, "enable_gqa": True},
    )  # fmt: skip


@probe
def plain() -> ZooCall:
    """No options at all; four key tiles, so two merged parts."""
    return ZooCall(**operands_of(2, (2, 2), 20, 50, 8, 3))


@probe
def whole_tiles() -> ZooCall:
    """Lengths that are whole tiles, square, with a mask that is not symmetric."""
    return ZooCall(**operands_of(1, (2, 2), 32, 32, 4, 4), attn_mask=random_mask(7, 32, 32))


@probe
def causal_tall() -> ZooCall:
    """Upper-left causal, more keys than queries, grouped heads whose rows straddle tiles."""
    return ZooCall(
        **operands_of(1, (4, 2), 21, 40, 4, 5), bias=values(6, 4, 21, 40),
        options={"is_causal": True, "enable_gqa": True},
    )  # fmt: skip


@probe
def causal_more_queries_than_keys() -> ZooCall:
    """Lower-right causal with fewer keys than queries: leading rows are empty."""
    return ZooCall(**operands_of(1, (1, 1), 21, 5, 4, 4), options={"is_causal": True, "causal": "lower_right"})


@probe
def causal_and_mask() -> ZooCall:
    """Causal rows whose legal keys a mask hides; a second batch hides others."""
    mask = torch.ones(2, 1, 18, 18, dtype=torch.bool)
    mask[0, :, 3, :5] = False
    mask[1, :, 2, :4] = False
    return ZooCall(**operands_of(2, (2, 2), 18, 18, 4, 4), attn_mask=mask, options={"is_causal": True})


@probe
def long_causal() -> ZooCall:
    """More than 128 rows and keys, nine key tiles and more."""
    return ZooCall(**operands_of(1, (1, 1), 132, 150, 2, 2), options={"is_causal": True})


@probe
def long_full() -> ZooCall:
    """Ten key tiles without causal."""
    return ZooCall(**operands_of(1, (1, 1), 3, 150, 2, 2))


@probe
def one_query_causal() -> ZooCall:
    """A single query sees key 0 alone under upper-left causal."""
    return ZooCall(**operands_of(1, (1, 1), 1, 5, 3, 3), options={"is_causal": True})


@probe
def windowed() -> ZooCall:
    """A window on a lower-right diagonal."""
    return ZooCall(**operands_of(1, (1, 1), 40, 70, 4, 4), options={"window": (5, 2), "causal": "lower_right"})


@probe
def window_of_zero() -> ZooCall:
    """Each row sees its own key only."""
    return ZooCall(**operands_of(1, (1, 1), 20, 20, 4, 4), options={"window": (0, 0)})


@probe
def packed() -> ZooCall:
    """Packed segments that differ between batches and change inside a tile."""
    queries = torch.tensor([[0] * 5 + [1] * 15, [0] * 11 + [1] * 9])
    keys = torch.tensor([[0] * 7 + [1] * 13, [0] * 3 + [1] * 17])
    return ZooCall(**operands_of(2, (1, 1), 20, 20, 4, 4), options={"segments": (queries, keys)})


@probe
def capped() -> ZooCall:
    """Softcap with bias."""
    return ZooCall(
        **operands_of(1, (2, 2), 18, 20, 4, 4), bias=values(6, 1, 1, 18, 20), options={"softcap": 0.75, "scale": 0.75}
    )


@probe
def layouts() -> ZooCall:
    """Query stored [B,Q,H,D], key a slice of a cache, value stored transposed, mask a slice."""
    call = ZooCall(**operands_of(2, (2, 2), 18, 20, 4, 5), options={"is_causal": True})
    cache = torch.cat([values(8, 2, 2, 3, 4), call.key, values(9, 2, 2, 7, 4)], 2)
    mask = random_mask(5, 2, 1, 18, 27)[..., 3:23]
    return ZooCall(
        query=call.query.transpose(1, 2).contiguous().transpose(1, 2), key=cache[:, :, 3:23],
        value=call.value.mT.contiguous().mT, grad=call.grad, attn_mask=mask, options=call.options,
    )  # fmt: skip


@probe
def broadcast_key() -> ZooCall:
    """One key head expanded over all heads, stride 0."""
    call = ZooCall(**operands_of(1, (3, 3), 5, 17, 4, 4))
    return ZooCall(
        query=call.query, key=call.key[:, :1].expand(1, 3, 17, 4), value=call.value, grad=call.grad,
        wants=("query", "value"),
    )  # fmt: skip


@probe
def as_many_heads_as_keys() -> ZooCall:
    """Heads and keys of one count, where a swap of the two goes unnoticed by shapes."""
    return ZooCall(**operands_of(1, (4, 4), 3, 4, 4, 4))


@probe
def one_column_mask() -> ZooCall:
    """A mask that is one value for a whole row."""
    return ZooCall(**operands_of(1, (1, 1), 18, 18, 4, 4), attn_mask=random_mask(5, 1, 1, 18, 1))


@probe
def key_padding() -> ZooCall:
    """A mask that is one line of keys for each batch."""
    mask = torch.arange(20)[None] < torch.tensor([[7], [18]])
    return ZooCall(**operands_of(2, (2, 2), 19, 20, 4, 4), attn_mask=mask[:, None, None, :])


@probe
def mask_of_whole_tiles() -> ZooCall:
    """A mask constant on every tile."""
    mask = (torch.arange(32)[:, None] // 16) >= (torch.arange(32)[None, :] // 16)
    return ZooCall(**operands_of(1, (1, 1), 32, 32, 4, 4), attn_mask=mask)


@probe
def hidden_first_tile() -> ZooCall:
    """The first key tile is hidden from all rows, then visible keys; later tiles hidden in other rows."""
    mask = torch.ones(1, 1, 18, 70, dtype=torch.bool)
    mask[..., :16] = False
    mask[..., 3:7, 16:50] = False
    mask[..., 7:9, 48:] = False
    return ZooCall(**operands_of(1, (2, 2), 18, 70, 4, 4), attn_mask=mask)


@probe
def additive_mask() -> ZooCall:
    """An additive mask with illegal entries and an empty row, of one batch and one head."""
    bias = values(6, 1, 1, 18, 20).masked_fill(~random_mask(5, 1, 1, 18, 20), -torch.inf)
    return ZooCall(**operands_of(2, (2, 2), 18, 20, 4, 4), attn_mask=bias)


@probe
def bias_of_every_axis() -> ZooCall:
    """A bias that varies over batch, head, row and key, on a rectangle with grouped heads."""
    return ZooCall(
        **operands_of(2, (6, 2), 18, 20, 4, 4), bias=values(6, 2, 6, 18, 20), attn_mask=random_mask(5, 2, 6, 18, 20),
        options={"enable_gqa": True},
    )  # fmt: skip


@probe
def only_the_bias_wants_gradient() -> ZooCall:
    """Query, key and value are frozen."""
    return ZooCall(**operands_of(1, (1, 1), 5, 6, 4, 4), bias=values(6, 5, 6), wants=("bias",))


@probe
def mapped_heads() -> ZooCall:
    """An explicit head map that is not consecutive groups."""
    return ZooCall(**operands_of(1, (4, 2), 5, 6, 4, 4), options={"head_map": (1, 0, 0, 1)})


@probe
def many_heads() -> ZooCall:
    """More than eight heads over both batches."""
    return ZooCall(**operands_of(3, (4, 4), 2, 3, 2, 2))


@probe
def wide() -> ZooCall:
    """More than 64 channels."""
    return ZooCall(**operands_of(1, (1, 1), 3, 4, 67, 67))


@probe
def hot() -> ZooCall:
    """Logits of hundreds that rise from tile to tile."""
    call = ZooCall(**operands_of(1, (1, 1), 18, 40, 4, 4))
    return ZooCall(
        query=call.query * 16, key=call.key * torch.linspace(1, 16, 40, dtype=WIDE)[:, None].round(), value=call.value,
        grad=call.grad,
    )  # fmt: skip


@probe
def falling() -> ZooCall:
    """Logits that fall by more than float64's exponent range from the first tile to the next."""
    bias = torch.zeros(1, 1, 4, 34, dtype=WIDE)
    bias[..., :16] = -3000.0
    bias[..., 1, :16] = 3000.0
    return ZooCall(**operands_of(1, (1, 1), 4, 34, 4, 4), bias=bias)


@probe
def cold() -> ZooCall:
    """Every logit below -1000, so that exp(0 - LSE) overflows in any format; a partial key tile."""
    return ZooCall(**operands_of(1, (1, 1), 3, 17, 4, 4), bias=torch.full((3, 17), -1024.0, dtype=WIDE))


@probe
def freezing() -> ZooCall:
    """Every logit below a sentinel of fifty thousand, and within the range of half precision."""
    return ZooCall(**operands_of(1, (1, 1), 3, 17, 4, 4), bias=torch.full((3, 17), -57344.0, dtype=WIDE))


@probe
def hidden_giants() -> ZooCall:
    """The largest logits belong to hidden keys."""
    bias = torch.zeros(1, 1, 4, 20, dtype=WIDE)
    bias[..., 5] = 2048.0
    mask = torch.arange(20) != 5
    return ZooCall(**operands_of(1, (1, 1), 4, 20, 4, 4), bias=bias, attn_mask=mask)


@probe
def nan_in_hidden_keys() -> ZooCall:
    """NaN in a key and a value that no query may attend, one each."""
    call = ZooCall(**operands_of(1, (1, 1), 4, 20, 4, 4))
    key, value = call.key.clone(), call.value.clone()
    key[:, :, 5], value[:, :, 7] = torch.nan, torch.nan
    return ZooCall(
        query=call.query, key=key, value=value, grad=call.grad,
        attn_mask=(torch.arange(20) != 5) & (torch.arange(20) != 7),
    )  # fmt: skip


@probe
def negative_scale() -> ZooCall:
    """A scale below zero."""
    return ZooCall(**operands_of(1, (1, 1), 3, 5, 4, 4), options={"scale": -0.75})


@probe
def zero_scale() -> ZooCall:
    """A scale of zero: every visible key weighs the same."""
    return ZooCall(**operands_of(1, (1, 1), 3, 5, 4, 4), options={"scale": 0.0})


@probe
def no_keys() -> ZooCall:
    """Key length zero."""
    return ZooCall(**operands_of(1, (1, 1), 3, 0, 4, 4))


@probe
def no_queries() -> ZooCall:
    """Query length zero."""
    return ZooCall(**operands_of(1, (1, 1), 0, 3, 4, 4))


@probe
def no_width() -> ZooCall:
    """Head width zero: uniform weights over visible keys."""
    return ZooCall(**operands_of(1, (1, 1), 3, 5, 0, 4))


@probe
def uneven_groups() -> ZooCall:
    """Three query heads over two key heads: refused."""
    return ZooCall(**operands_of(1, (3, 2), 3, 5, 4, 4), options={"enable_gqa": True})


@probe
def long_rows() -> ZooCall:
    """Sixty-five rows and keys: sums long enough to show a narrow accumulator."""
    return ZooCall(**operands_of(1, (1, 1), 65, 65, 8, 8), options={"scale": 0.3})


@probe
def trailing_empty_rows() -> ZooCall:
    """The last rows see no key."""
    mask = (torch.arange(6) < 4)[:, None].expand(6, 5)
    return ZooCall(**operands_of(1, (1, 1), 6, 5, 4, 4), attn_mask=mask)
