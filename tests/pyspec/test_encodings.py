"""Encodings read back as the relation that went in, at every edge, or are refused by name."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from attnspec.pyspec import evaluate, make_call
from attnspec.pyspec import visibility as vis
from attnspec.pyspec.calls.encodings import (
    ENCODINGS,
    BlockMask,
    CausalFlag,
    CuSeqlens,
    EncodingError,
    compose_additive,
    encode,
    get_encoding,
    leaked_mass,
    refusals,
)
from attnspec.pyspec.calls.formats import FORMATS, get_format
from attnspec.pyspec.calls.masks.compiler import compile_visibility
from attnspec.pyspec.calls.masks.coordinates import packed, right_padded
from attnspec.pyspec.calls.masks.handoff import VisibilityError
from attnspec.pyspec.domains import Float64Domain

DENSE = ("sdpa_bool", "mha_blocked_bool", "additive", "additive_finite_sentinel", "flex_mask_mod", "flex_block_mask")
NAMES = [
    "sdpa_bool", "mha_blocked_bool", "mha_key_padding", "additive", "additive_finite_sentinel", "is_causal_flag",
    "causal_lower_right", "flex_mask_mod", "flex_block_mask", "cu_seqlens",
]  # fmt: skip
SHAPES = [
    (1, 1, 1, 1),
    (2, 3, 4, 5),
    (1, 2, 5, 3),
    (2, 1, 1, 7),
    (1, 1, 0, 3),
    (1, 1, 3, 0),
    (0, 1, 2, 2),
    (1, 0, 2, 2),
]


def whole(relation: np.ndarray, shape: tuple[int, int, int, int]) -> np.ndarray:
    return np.broadcast_to(relation, shape).copy()


def test_the_registry_is_the_list_of_the_contract() -> None:
    assert list(ENCODINGS) == NAMES
    assert [n for n, e in ENCODINGS.items() if not e.exact] == ["additive_finite_sentinel"]
    assert all(e.polarity and e.expresses for e in ENCODINGS.values())
    with pytest.raises(EncodingError, match="no such encoding"):
        get_encoding("mask")


@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize("shape", SHAPES)
def test_dense_encodings_say_any_relation(name: str, shape: tuple[int, int, int, int]) -> None:
    rng = np.random.default_rng(0)
    for density in (0.0, 0.3, 0.7, 1.0):
        visible = rng.random(shape) < density
        options = {"block_size": (2, 3)} if name == "flex_block_mask" else {}
        encoded = encode(name, visible, approximate=True, **options)
        assert (encoded.decode() == visible).all()
        assert encoded.decode().shape == shape


def test_a_relation_stored_small_is_read_back_whole() -> None:
    shape, keys = (2, 3, 4, 5), np.array([True, False, True, True, False])
    stored, relation = keys.reshape(1, 1, 1, 5), np.broadcast_to(keys, (2, 3, 4, 5))
    bias = np.arange(4.0).reshape(1, 1, 4, 1)
    for name in ENCODINGS:
        if refusals(relation)[name] is None:
            options = {"block_size": (2, 3)} if name == "flex_block_mask" else {}
            assert (encode(name, stored, shape=shape, approximate=True, **options).decode() == relation).all()
    assert encode("sdpa_bool", stored, shape=shape).payload.shape == (1, 1, 1, 5)
    assert encode("additive", stored, bias, shape=shape).payload.shape == (1, 1, 4, 5)
    assert encode("is_causal_flag", np.ones((1, 1, 1, 1), dtype=bool), shape=shape).payload == CausalFlag(False)
    with pytest.raises(EncodingError, match=r"visible has shape \[1, 1, 1, 5\]: expected four axes that broadcast"):
        encode("sdpa_bool", stored, shape=(2, 3, 4, 6))
    with pytest.raises(EncodingError, match=r"key 0 is visible to query 0 \[batch 0, head 0\]|cannot say"):
        encode("is_causal_flag", stored, shape=shape)


@pytest.mark.parametrize("dtype", FORMATS)
def test_additive_masks_hold_in_every_format(dtype: str) -> None:
    visible = np.random.default_rng(1).random((2, 2, 3, 4)) < 0.5
    for name in ("additive", "additive_finite_sentinel"):
        assert (encode(name, visible, dtype=dtype, approximate=True).decode() == visible).all()


def test_polarity_of_the_same_support() -> None:
    visible = whole(vis.upper_left(3, 3), (1, 1, 3, 3))
    assert encode("sdpa_bool", visible).payload[0, 0].astype(int).tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert encode("mha_blocked_bool", visible).payload.astype(int).tolist() == [[0, 1, 1], [0, 0, 1], [0, 0, 0]]
    assert encode("additive", visible).payload[0, 0, 0].tolist() == [0.0, -np.inf, -np.inf]
    keys = whole(right_padded([2], 3)[:, None, None, :], (1, 2, 4, 3))
    assert encode("mha_key_padding", keys).payload.tolist() == [[False, False, True]]


def test_a_relation_that_heads_share_needs_no_axis_of_heads() -> None:
    shared = whole(vis.lower_right(2, 5), (2, 3, 2, 5))
    assert encode("mha_blocked_bool", shared).payload.shape == (2, 5)
    own = shared.copy()
    own[1, 2, 0, 0] = False
    assert encode("mha_blocked_bool", own).payload.shape == (6, 2, 5)
    assert encode("mha_blocked_bool", own).payload[5, 0, 0]


def test_one_and_zero_is_no_additive_mask() -> None:
    """A float 1/0 matrix hides nothing: read as an additive mask it says that everything is visible."""
    visible = whole(vis.upper_left(3, 3), (1, 1, 3, 3))
    assert get_encoding("additive").read(visible.astype(float), (1, 1, 3, 3)).all()


EDGES = [
    ("mha_key_padding", whole(vis.upper_left(2, 3), (1, 1, 2, 3)), (0, 0, 1, 1)),
    ("is_causal_flag", whole(vis.lower_right(2, 5), (1, 2, 2, 5)), (0, 0, 0, 1)),
    ("causal_lower_right", whole(vis.upper_left(2, 5), (1, 1, 2, 5)), (0, 0, 0, 1)),
    ("cu_seqlens", np.array([[[[True, False, True]]]]), (0, 0, 0, 1)),
]


@pytest.mark.parametrize(("name", "visible", "edge"), EDGES)
def test_a_lossy_request_is_refused_by_name_with_its_first_edge(
    name: str, visible: np.ndarray, edge: tuple[int, int, int, int]
) -> None:
    with pytest.raises(EncodingError, match=rf"^{name}: cannot say this relation: key {edge[3]} is") as refused:
        encode(name, visible)
    assert refused.value.edge == edge
    assert refused.value.encoding == name


def test_the_first_lost_edge_may_lie_in_a_later_head() -> None:
    visible = whole(vis.upper_left(3, 3), (2, 2, 3, 3))
    visible[1, 1, 2, 0] = False
    with pytest.raises(EncodingError, match=r"key 0 is hidden to query 2 \[batch 1, head 1\], the encoding says vis"):
        encode("is_causal_flag", visible)


def test_flags_say_their_triangles_only() -> None:
    square, upper, lower = (
        whole(m, (2, 2, *m.shape)) for m in (vis.upper_left(3, 3), vis.upper_left(2, 5), vis.lower_right(2, 5))
    )
    assert encode("is_causal_flag", square).payload == CausalFlag(True)
    assert encode("is_causal_flag", upper).payload == CausalFlag(True)
    assert encode("is_causal_flag", np.ones((1, 1, 2, 5), bool)).payload == CausalFlag(False)
    assert encode("causal_lower_right", lower).payload.variant == "lower_right"
    assert encode("causal_lower_right", square).decode().sum() == 4 * 6
    said = refusals(upper)
    assert said["causal_lower_right"] is not None
    assert said["is_causal_flag"] is None
    assert said["additive_finite_sentinel"] is not None


def test_a_predicate_written_by_hand_is_held_to_every_edge() -> None:
    """A decode predicate over the local index repeats the upper-left bug; with the cache offset it is right."""
    compiled = compile_visibility(1, 1, 2, 5, causal=True, cache_offset=3)
    assert encode("flex_mask_mod", compiled.relation, predicate=lambda b, h, i, j: j <= i + 3).decode()[0, 0, 0, 3]
    with pytest.raises(EncodingError, match="key 1 is visible to query 0"):
        encode("flex_mask_mod", compiled.relation, predicate=lambda b, h, i, j: j <= i)


def test_blocks_are_full_partial_or_skipped() -> None:
    visible = whole(vis.upper_left(6, 6), (1, 1, 6, 6))
    mask: BlockMask = encode("flex_block_mask", visible, block_size=2).payload
    assert mask.full[0, 0].astype(int).tolist() == [[0, 0, 0], [1, 0, 0], [1, 1, 0]]
    assert mask.partial[0, 0].astype(int).tolist() == np.eye(3, dtype=int).tolist()
    ragged: BlockMask = encode("flex_block_mask", np.ones((1, 1, 5, 7), bool), block_size=(4, 4)).payload
    assert ragged.full[0, 0].astype(int).tolist() == [[1, 0], [0, 0]]
    assert ragged.partial[0, 0].astype(int).tolist() == [[0, 1], [1, 1]]


@pytest.mark.parametrize("causal", [None, "upper_left", "lower_right"])
def test_packed_sequences_by_their_boundaries(causal: str | None) -> None:
    layout = packed([3, 4, 5, 4])
    relation = vis.segments(layout.segment, layout.segment)
    if causal:
        relation = vis.compose(relation, vis.upper_left(16, 16))
    found = encode("cu_seqlens", whole(relation, (1, 2, 16, 16))).payload
    assert found.query == found.key == (0, 3, 7, 12, 16)
    assert (found.causal is None) == (causal is None)


def test_packed_sequences_of_unequal_lengths_say_their_alignment() -> None:
    for causal, inside in (("lower_right", vis.lower_right), ("upper_left", vis.upper_left)):
        relation = np.zeros((1, 1, 3, 9), dtype=bool)
        relation[0, 0, :1, :4], relation[0, 0, 1:, 4:] = inside(1, 4), inside(2, 5)
        found = encode("cu_seqlens", relation).payload
        assert found == CuSeqlens((0, 1, 3), (0, 4, 9), causal)
        same = encode("cu_seqlens", relation, query_boundaries=[0, 1, 3], key_boundaries=[0, 4, 9], causal=causal)
        assert same.payload == found
    with pytest.raises(EncodingError, match="cu_seqlens: cannot say"):
        encode("cu_seqlens", relation, query_boundaries=[0, 1, 3], key_boundaries=[0, 4, 9], causal=None)
    with pytest.raises(EncodingError, match=r"expected 0, \.\.\., 3, never decreasing"):
        encode("cu_seqlens", relation, query_boundaries=[0, 2, 1, 3])
    with pytest.raises(EncodingError, match="1 query sequences but 2 key sequences"):
        encode("cu_seqlens", relation, query_boundaries=[0, 3], key_boundaries=[0, 4, 9])


def test_a_bias_travels_only_where_there_is_room_for_it() -> None:
    visible = np.array([[[[True, False]]]])
    bias = np.array([[[[0.5, 7.0]]]])
    assert encode("additive", visible, bias).payload[0, 0, 0].tolist() == [0.5, -np.inf]
    for name in set(ENCODINGS) - {"additive", "additive_finite_sentinel"}:
        with pytest.raises(EncodingError, match=f"^{name}: carries no bias"):
            encode(name, visible, bias)
    with pytest.raises(EncodingError, match="bias is not finite"):
        encode("additive", visible, np.array([[[[0.0, -np.inf]]]]))
    with pytest.raises(EncodingError, match="no values of float16"):
        encode("additive", visible, np.array([[[[0.1, 0.0]]]]), dtype="float16")
    with pytest.raises(EncodingError, match="bias has shape"):
        encode("additive", visible, np.zeros((1, 1, 1, 3)))


def test_boolean_and_additive_composition_agree_truth_table() -> None:
    """Every combination of three rules on one edge: AND of booleans, sum of 0 and -inf, and any finite bias."""
    for dtype in FORMATS:
        for rules in itertools.product([False, True], repeat=3):
            parts = [np.full((1, 1, 1, 1), rule) for rule in rules]
            boolean = vis.compose(*parts)
            terms = [encode("additive", part, dtype=dtype).payload for part in parts]
            for bias in (0.0, 7.0, -7.0, get_format(dtype).largest):
                added = compose_additive(dtype, *terms, np.full((1, 1, 1, 1), bias))
                assert not np.isnan(added).any()
                assert (get_encoding("additive").read(added, (1, 1, 1, 1)) == boolean).all(), (dtype, rules, bias)


def test_the_sum_of_two_finite_sentinels_overflows_to_minus_infinity() -> None:
    hidden = np.zeros((1, 1, 1, 1), dtype=bool)
    for dtype in FORMATS:
        sentinel, value = encode("additive_finite_sentinel", hidden, dtype=dtype, approximate=True).payload
        assert value == -get_format(dtype).largest
        assert compose_additive(dtype, sentinel, sentinel) == -np.inf
        # A sentinel that was added once is no longer the sentinel: only one final relation reads back.
        small = encode("additive_finite_sentinel", hidden, dtype=dtype, approximate=True, sentinel=-1e4).payload[0]
        assert compose_additive(dtype, small, small) > -np.inf


def test_a_finite_sentinel_needs_consent_and_leaks() -> None:
    visible = np.array([[[[True, False]]]])
    with pytest.raises(EncodingError, match="additive_finite_sentinel: expresses any relation, approximately"):
        encode("additive_finite_sentinel", visible)
    assert not encode("additive_finite_sentinel", visible, approximate=True).exact
    with pytest.raises(EncodingError, match="unknown option 'sentinel'"):
        encode("additive", visible, sentinel=-1e9)
    # Equal scores: nothing is left in float64. A visible score of -2e4 beside a hidden 0: the hidden key takes all.
    assert leaked_mass(visible, np.zeros((1, 1, 1, 2)), -1e4) == 0.0
    assert leaked_mass(visible, np.array([[[[-2e4, 0.0]]]]), -1e4) == 1.0
    assert leaked_mass(visible, np.array([[[[-1e4, 0.0]]]]), -1e4) == 0.5
    # The penalty is added: a hidden score of its own size takes it back.
    assert leaked_mass(visible, np.array([[[[0.0, 1e4]]]]), -1e4) == 0.5
    # A row that sees nothing spreads over all keys instead of being zero.
    assert leaked_mass(np.zeros((1, 1, 1, 2), bool), np.zeros((1, 1, 1, 2)), -1e4) == 1.0
    # A bias equal to the sentinel cannot be told from it.
    with pytest.raises(EncodingError, match="key 0 is visible"):
        encode("additive_finite_sentinel", visible, np.array([[[[-1e4, 0.0]]]]), approximate=True, sentinel=-1e4)


def test_a_padded_key_with_bias_seven_stays_at_weight_zero() -> None:
    query, key = np.array([[[[1.0, 0.0], [0.0, 1.0]]]]), np.array([[[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]]])
    visible = np.array([True, True, False])[None, None, None, :]
    bias = np.array([[[[0.0, 0.5, 7.0], [0.25, 0.0, 7.0]]]])
    told = encode("additive", whole(visible, (1, 1, 2, 3)), bias).payload
    assert (told[..., 2] == -np.inf).all()
    # Values are unit vectors: the output is the weights.
    call = make_call(query, key, np.eye(3)[None, None], visible=visible, bias=bias, encoding="additive")
    weights = evaluate(Float64Domain(), call)["output"]
    assert (weights[..., 2] == 0.0).all()
    np.testing.assert_array_equal(weights, evaluate(Float64Domain(), call.but(bias=bias * [1, 1, 0]))["output"])
    np.testing.assert_allclose(weights.sum(-1), 1.0, rtol=4 * 2.0**-53)


def test_a_compiled_relation_is_lowered_once() -> None:
    compiled = compile_visibility(1, 2, 3, 5, causal=True, alignment="lower_right")
    encoded = encode("causal_lower_right", compiled)
    assert encoded.handoff is not None
    assert encoded.handoff.lowered[0].predicate == "causal_lower_right"
    with pytest.raises(VisibilityError, match="already lowered"):
        encoded.handoff.lowered_to("is_causal_flag", by="kernel")


def test_what_is_no_relation_is_refused() -> None:
    with pytest.raises(EncodingError, match="visible has dtype float64"):
        encode("sdpa_bool", np.zeros((1, 1, 2, 2)))
    with pytest.raises(EncodingError, match=r"shape \[2, 2\]"):
        encode("sdpa_bool", np.zeros((2, 2), bool))
