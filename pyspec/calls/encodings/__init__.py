"""Encodings: named ways to tell a kernel what is visible, each read back before it is accepted.

`encode` turns a relation into the object a kernel takes and refuses by name whatever would not read back as the
same truth value at every (b, h, i, j). Boolean composition (AND) and additive composition (sum of 0 and -inf) agree.
Lean: AttnProofs.additive_masks_compose, AttnProofs.blocked_masks_compose_by_or.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from attnspec.pyspec.calls.encodings import blocks, dense, flags, packed
from attnspec.pyspec.calls.encodings.base import (
    Encoded,
    Encoding,
    EncodingError,
    Registry,
    Shape,
    first_difference,
    request,
)
from attnspec.pyspec.calls.encodings.blocks import BlockMask
from attnspec.pyspec.calls.encodings.dense import compose_additive, leaked_mass
from attnspec.pyspec.calls.encodings.flags import CausalBias, CausalFlag
from attnspec.pyspec.calls.encodings.packed import CuSeqlens
from attnspec.pyspec.calls.masks.compiler import Compiled

_REGISTRY = Registry()
_REGISTRY.add(
    dense.SDPA_BOOL,
    dense.MHA_BLOCKED_BOOL,
    dense.MHA_KEY_PADDING,
    dense.ADDITIVE,
    dense.ADDITIVE_FINITE_SENTINEL,
    flags.IS_CAUSAL_FLAG,
    flags.CAUSAL_LOWER_RIGHT,
    blocks.FLEX_MASK_MOD,
    blocks.FLEX_BLOCK_MASK,
    packed.CU_SEQLENS,
)
ENCODINGS: dict[str, Encoding] = _REGISTRY.by_name


def get_encoding(name: str) -> Encoding:
    """The encoding of that name; an EncodingError lists the known ones."""
    if name not in ENCODINGS:
        raise EncodingError(name, f"no such encoding: expected one of {', '.join(ENCODINGS)}")
    return ENCODINGS[name]


def encode(
    name: str,
    visible: np.ndarray | Compiled,
    bias: np.ndarray | None = None,
    *,
    dtype: str = "float32",
    approximate: bool = False,
    shape: Shape | None = None,
    **options: Any,
) -> Encoded:
    """The relation in that encoding, read back and compared at every edge.

    visible: [B, Hq, Q, K] boolean or a compiled relation, whose record then says that it was lowered. bias: finite,
    broadcastable, of `dtype`. approximate: take an encoding that leaves hidden keys a little weight. shape: what
    `visible` broadcasts to, where it is stored smaller; dense masks are then stored as small.
    Raises EncodingError naming the encoding and the first (b, h, i, j) that it would lose.
    """
    encoding = get_encoding(name)
    if not encoding.exact and not approximate:
        raise EncodingError(name, f"expresses {encoding.expresses}; use 'additive', or say approximate=True")
    asked = request(encoding, visible, bias, dtype, options, shape)
    handoff = visible.handoff.lowered_to(name, by="encode") if isinstance(visible, Compiled) else None
    encoded = Encoded(encoding, encoding.make(asked), asked.shape, handoff)
    edge = first_difference(asked.stored, encoded.decode())
    if edge is not None:
        b, h, i, j = edge
        wanted, said = ("visible", "hidden") if asked.visible[edge] else ("hidden", "visible")
        raise EncodingError(
            name,
            f"cannot say this relation: key {j} is {wanted} to query {i} [batch {b}, head {h}], the encoding says "
            f"{said}; it expresses {encoding.expresses}; 'sdpa_bool' and 'additive' say any relation",
            edge,
        )
    return encoded


def refusals(visible: np.ndarray | Compiled, bias: np.ndarray | None = None) -> dict[str, str | None]:
    """For every encoding, None where it says this relation exactly, else why not."""
    found: dict[str, str | None] = {}
    for name in ENCODINGS:
        try:
            encode(name, visible, bias, dtype="float64")
            found[name] = None
        except EncodingError as error:
            found[name] = str(error)
    return found


__all__ = [
    "ENCODINGS",
    "BlockMask",
    "CausalBias",
    "CausalFlag",
    "CuSeqlens",
    "Encoded",
    "Encoding",
    "EncodingError",
    "compose_additive",
    "encode",
    "get_encoding",
    "leaked_mass",
    "refusals",
]
