"""Memory layouts of torch tensors as statements: values stay, strides, offsets and surroundings change."""

from __future__ import annotations

from typing import Any

from attnspec.certify.conventions.execute import run_statements

PADDING = 3
HEADS_LAST = ("{n} = {n}.transpose(1, 2).contiguous().transpose(1, 2)",)
TRANSPOSED = ("{n} = {n}.transpose(2, 3).contiguous().transpose(2, 3)",)
PADDED = (
    f"room = {{n}}.new_full((*{{n}}.shape[:-1], {{n}}.shape[-1] + {PADDING}), {{filling}})",
    "room[..., :{n}.shape[-1]] = {n}",
    "{n} = room[..., :{n}.shape[-1]]",
)
OFFSET = (
    f"room = {{n}}.new_full(({{n}}.numel() + {2 * PADDING},), {{filling}})",
    f"room[{PADDING}:-{PADDING}] = {{n}}.flatten()",
    f"{{n}} = room[{PADDING}:-{PADDING}].view({{n}}.shape)",
)
_TENSOR = {"contiguous": (), "heads_last": HEADS_LAST, "transposed": TRANSPOSED, "padded": PADDED, "offset": OFFSET}
_MASK = {"contiguous": (), "expanded": (), "transposed": TRANSPOSED, "padded": PADDED}


def lay_out_statements(name: str, layout: str) -> tuple[str, ...]:
    """Statements that give the tensor in that variable one of pyspec's LAYOUTS.

    What surrounds a padded or offset tensor is NaN, so that a read outside its bounds shows.
    """
    return tuple(s.format(n=name, filling="torch.nan") for s in _TENSOR[layout])


def mask_statements(layout: str, *, boolean: bool) -> tuple[str, ...]:
    """Statements that give `attn_mask` one of pyspec's MASK_LAYOUTS; "contiguous" keeps its broadcast shape.

    They read `score_shape`, [B, Hq, Q, K]. What surrounds a padded mask would show, if it were read: True in a boolean
    mask, NaN in one of numbers.
    """
    if layout == "contiguous":
        return ()
    filling = "True" if boolean else "torch.nan"
    return (
        "attn_mask = attn_mask.expand(score_shape)",
        *(s.format(n="attn_mask", filling=filling) for s in _MASK[layout]),
    )


def lay_out_mask(mask: Any, layout: str, shape: tuple[int, ...]) -> Any:
    """A mask tensor in that memory layout."""
    import torch

    names = {"torch": torch, "attn_mask": mask, "score_shape": shape}
    run_statements(mask_statements(layout, boolean=mask.dtype == torch.bool), names)
    return names["attn_mask"]
