"""Encodings as torch takes them: every one gives the specified attention when torch's own functions read it."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from attnspec.certify.conventions.torch_masks import to_torch
from attnspec.pyspec import AttentionCall, Oracle, bounds, make_call
from attnspec.pyspec import visibility as vis
from attnspec.pyspec.calls.encodings import encode
from attnspec.pyspec.calls.masks.compiler import compile_visibility
from attnspec.pyspec.calls.masks.coordinates import packed, right_padded
from attnspec.pyspec.oracle.ledger import every_operation_stored

torch = pytest.importorskip("torch")

B, H, Q, K, D = 2, 3, 5, 7, 4


def a_call(visible: np.ndarray, **fields: Any) -> AttentionCall:
    rng = np.random.default_rng(0)
    shapes = [
        (visible.shape[0], visible.shape[1], n, D) for n in (visible.shape[2], visible.shape[3], visible.shape[3])
    ]
    query, key, value = (rng.standard_normal(shape) for shape in shapes)
    return make_call(query, key, value, dtype="float64", visible=visible, **fields)


def tensors(call: AttentionCall) -> list[Any]:
    return [torch.from_numpy(np.array(x)) for x in (call.query, call.key, call.value)]


def agrees(call: AttentionCall, output: Any) -> bool:
    allowed = bounds(call, every_operation_stored("float64"))["output"]
    return Oracle(call).judge("output", output.numpy(), allowed).inside


def whole(relation: np.ndarray) -> np.ndarray:
    return np.broadcast_to(relation, (B, H, *relation.shape[-2:])).copy()


def random_relation() -> np.ndarray:
    visible = np.random.default_rng(1).random((B, H, Q, K)) < 0.6
    visible[..., 0] = True
    return visible


@pytest.mark.parametrize("name", ["sdpa_bool", "additive", "additive_finite_sentinel"])
def test_dense_masks_through_functional_attention(name: str) -> None:
    call = a_call(random_relation())
    mask = to_torch(encode(name, call.visible, dtype="float64", approximate=True), dtype="float64")
    assert agrees(call, torch.nn.functional.scaled_dot_product_attention(*tensors(call), attn_mask=mask))


def test_a_padded_key_with_bias_seven_through_functional_attention() -> None:
    visible = np.broadcast_to(right_padded([5], K)[:, None, None, :], (B, H, Q, K)).copy()
    bias = np.where(visible, 0.0, 7.0)
    call = a_call(visible, bias=bias, encoding="additive")
    mask = to_torch(encode("additive", visible, bias, dtype="float64"), dtype="float64")
    assert agrees(call, torch.nn.functional.scaled_dot_product_attention(*tensors(call), attn_mask=mask))
    # Adding the bias after the mask's finite penalty instead would be another call.
    revived = torch.from_numpy(np.where(visible, 0.0, -1e-3) + bias)
    assert not agrees(call, torch.nn.functional.scaled_dot_product_attention(*tensors(call), attn_mask=revived))


def test_flags_and_causal_bias_through_functional_attention() -> None:
    upper = a_call(whole(vis.upper_left(Q, K)))
    flag = to_torch(encode("is_causal_flag", upper.visible))
    assert agrees(upper, torch.nn.functional.scaled_dot_product_attention(*tensors(upper), is_causal=flag))
    lower = a_call(whole(vis.lower_right(Q, K)))
    bias = to_torch(encode("causal_lower_right", compile_visibility(B, H, Q, K, causal=True, alignment="lower_right")))
    assert agrees(lower, torch.nn.functional.scaled_dot_product_attention(*tensors(lower), attn_mask=bias))
    # The flag over the same rectangle aligns to the upper left: another call.
    assert not agrees(lower, torch.nn.functional.scaled_dot_product_attention(*tensors(lower), is_causal=True))


def multihead(call: AttentionCall, **masks: Any) -> Any:
    """torch's MultiheadAttention with identity projections: the heads lie side by side in the embedding."""
    b, h = call.axes.batch, call.axes.query_heads
    layer = torch.nn.MultiheadAttention(h * D, h, bias=False, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        layer.in_proj_weight.copy_(torch.eye(h * D, dtype=torch.float64).repeat(3, 1))
        layer.out_proj.weight.copy_(torch.eye(h * D, dtype=torch.float64))
        flat = [t.transpose(1, 2).reshape(b, -1, h * D) for t in tensors(call)]
        out, _ = layer(*flat, need_weights=False, **masks)
    return out.reshape(b, -1, h, D).transpose(1, 2)


def test_blocked_masks_and_key_padding_through_multihead_attention() -> None:
    call = a_call(random_relation())
    assert agrees(call, multihead(call, attn_mask=to_torch(encode("mha_blocked_bool", call.visible))))
    assert not agrees(call, multihead(call, attn_mask=to_torch(encode("sdpa_bool", call.visible)).reshape(-1, Q, K)))
    keys = right_padded([3, 6], K)
    shared = vis.lower_right(Q, K)
    both = a_call(keys[:, None, None, :] & shared & np.ones((B, H, 1, 1), bool))
    masks = {
        "attn_mask": to_torch(encode("mha_blocked_bool", whole(shared))),
        "key_padding_mask": to_torch(encode("mha_key_padding", np.broadcast_to(keys[:, None, None, :], (B, H, Q, K)))),
    }
    assert masks["attn_mask"].shape == (Q, K)
    assert agrees(both, multihead(both, **masks))


def flex(call: AttentionCall, block_mask: Any) -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    with warnings.catch_warnings():
        # It says that it is not compiled.
        warnings.simplefilter("ignore")
        return flex_attention(*tensors(call), block_mask=block_mask)


def test_predicates_and_block_masks_through_flex_attention() -> None:
    from torch.nn.attention.flex_attention import create_block_mask

    compiled = compile_visibility(B, H, 20, 40, causal=True, window=(17, 0), alignment="lower_right")
    call = a_call(compiled.relation.copy())
    ours = to_torch(encode("flex_block_mask", compiled, block_size=8))
    mod = to_torch(encode("flex_mask_mod", compiled))
    theirs = create_block_mask(mod, B, H, 20, 40, device="cpu", BLOCK_SIZE=8)
    assert torch.equal(ours.to_dense(), theirs.to_dense())
    assert torch.equal(ours.full_kv_num_blocks, theirs.full_kv_num_blocks)
    for block_mask in (ours, theirs):
        assert agrees(call, flex(call, block_mask))


def test_boundaries_cut_the_tensors_as_variable_length_kernels_do() -> None:
    layout = packed([3, 4, 5, 4])
    relation = vis.compose(vis.segments(layout.segment, layout.segment), vis.upper_left(16, 16))
    call = a_call(np.broadcast_to(relation, (1, H, 16, 16)).copy())
    encoded = encode("cu_seqlens", call.visible)
    query_cuts, key_cuts, longest_query, longest_key = to_torch(encoded)
    assert query_cuts.tolist() == key_cuts.tolist() == [0, 3, 7, 12, 16]
    assert (query_cuts.dtype, longest_query, longest_key) == (torch.int32, 5, 5)
    query, key, value = tensors(call)
    parts = [
        torch.nn.functional.scaled_dot_product_attention(
            query[:, :, a:b], key[:, :, a:b], value[:, :, a:b], is_causal=encoded.payload.causal is not None
        )
        for a, b in zip(query_cuts.tolist(), query_cuts.tolist()[1:], strict=False)
    ]
    assert agrees(call, torch.cat(parts, dim=2))
