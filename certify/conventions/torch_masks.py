"""Encodings as torch objects: what `pyspec.calls.encodings` describes, in the form that torch's own functions take.

torch is imported when an object is made. Nothing is decided here: `encode` has read the encoding back already.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from attnspec.certify.conventions.execute import torch_dtype
from attnspec.pyspec.calls.encodings import BlockMask, CausalBias, CausalFlag, CuSeqlens, Encoded
from attnspec.pyspec.calls.encodings.blocks import evaluate


def to_torch(encoded: Encoded, *, dtype: str = "float32", device: str = "cpu") -> Any:
    """The torch object of an encoding; `dtype` is that of additive masks.

    sdpa_bool, mha_blocked_bool, mha_key_padding: a boolean tensor. additive, additive_finite_sentinel: a tensor of
    numbers. is_causal_flag: a bool. causal_lower_right: a CausalBias of torch.nn.attention.bias. flex_mask_mod: a
    function of four index tensors. flex_block_mask: a BlockMask of torch.nn.attention.flex_attention.
    cu_seqlens: (query boundaries, key boundaries, longest query, longest key), boundaries as int32.
    """
    import torch

    payload = encoded.payload
    if encoded.encoding.name == "additive_finite_sentinel":
        payload = payload[0]
    if isinstance(payload, np.ndarray):
        numbers = torch.from_numpy(np.array(payload)).to(device)
        return numbers if payload.dtype == np.bool_ else numbers.to(torch_dtype(dtype))
    if isinstance(payload, CausalFlag):
        return payload.is_causal
    if isinstance(payload, CausalBias):
        from torch.nn.attention import bias

        return {"lower_right": bias.causal_lower_right, "upper_left": bias.causal_upper_left}[payload.variant](
            payload.queries, payload.keys
        )
    if isinstance(payload, CuSeqlens):
        cuts = [torch.tensor(x, dtype=torch.int32, device=device) for x in (payload.query, payload.key)]
        longest = [int(np.diff(x).max(initial=0)) for x in (payload.query, payload.key)]
        return (*cuts, *longest)
    if isinstance(payload, BlockMask):
        return _block_mask(payload, encoded, device)
    return _mask_mod(encoded.decode(), device)


def _mask_mod(relation: np.ndarray, device: str) -> Any:
    import torch

    table = torch.from_numpy(np.array(relation)).to(device)

    def mask_mod(b: Any, h: Any, q_index: Any, kv_index: Any) -> Any:
        return table[b, h, q_index, kv_index]

    return mask_mod


def _block_mask(payload: BlockMask, encoded: Encoded, device: str) -> Any:
    """torch's BlockMask from our blocks: counts and indices of partial and of full blocks for each row of blocks."""
    import torch
    from torch.nn.attention.flex_attention import BlockMask as TorchBlockMask

    def numbered(blocks: np.ndarray) -> tuple[Any, Any]:
        # Indices of true blocks first, in order: a stable sort of what is not.
        order = np.argsort(~blocks, axis=-1, kind="stable").astype(np.int32)
        count = blocks.sum(axis=-1).astype(np.int32)
        return torch.from_numpy(count).to(device), torch.from_numpy(order).to(device)

    partial, full = numbered(payload.partial), numbered(payload.full)
    relation = evaluate(payload.mask_mod, encoded.shape)
    return TorchBlockMask.from_kv_blocks(
        partial[0],
        partial[1],
        full[0],
        full[1],
        BLOCK_SIZE=payload.size,
        mask_mod=_mask_mod(relation, device),
        seq_lengths=(encoded.shape[2], encoded.shape[3]),
    )
