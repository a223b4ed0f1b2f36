"""The visibility compiler against predicates written out edge by edge, and its refusals."""

from __future__ import annotations

import json

import numpy as np
import pytest

from attnspec.pyspec import visibility as vis
from attnspec.pyspec.calls.masks.compiler import Compiled, compile_visibility
from attnspec.pyspec.calls.masks.coordinates import (
    ancestors,
    cache_slots,
    left_padded,
    packed,
    positions_of,
    right_padded,
)
from attnspec.pyspec.calls.masks.handoff import VisibilityError

SIZES = [(1, 1), (2, 5), (5, 2), (4, 4), (1, 6), (6, 1), (0, 3), (3, 0)]


def relation(compiled: Compiled) -> np.ndarray:
    assert compiled.relation.shape == compiled.handoff.shape
    return compiled.relation


def edge_by_edge(shape: tuple[int, int, int, int], sees) -> np.ndarray:
    out = np.zeros(shape, dtype=bool)
    for b, h, i, j in np.ndindex(shape):
        out[b, h, i, j] = sees(b, h, i, j)
    return out


def test_the_two_triangles_of_two_queries_over_five_keys() -> None:
    upper = compile_visibility(1, 1, 2, 5, causal=True, alignment="upper_left").relation[0, 0]
    lower = compile_visibility(1, 1, 2, 5, causal=True, alignment="lower_right").relation[0, 0]
    assert upper.astype(int).tolist() == [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0]]
    assert lower.astype(int).tolist() == [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]


@pytest.mark.parametrize(("queries", "keys"), SIZES)
@pytest.mark.parametrize("alignment", ["upper_left", "lower_right"])
def test_causal_and_prefix_and_window_are_those_of_the_spec(queries: int, keys: int, alignment: str) -> None:
    offset = keys - queries if alignment == "lower_right" else 0
    whole = (2, 3, queries, keys)
    for got, expected in (
        (compile_visibility(*whole, causal=True, alignment=alignment), vis.causal(queries, keys, offset)),
        (compile_visibility(*whole, prefix_length=2, alignment=alignment), vis.prefix(queries, keys, 2, offset)),
        (compile_visibility(*whole, window=(1, 2), alignment=alignment), vis.window(queries, keys, 1, 2, offset)),
        (
            compile_visibility(*whole, window=(1, None), causal=True, alignment=alignment),
            vis.window(queries, keys, 1, 0, offset),
        ),
    ):
        assert (relation(got) == expected).all()
        assert got.handoff.alignment == alignment


def test_every_predicate_at_once_is_their_conjunction_edge_by_edge() -> None:
    rng = np.random.default_rng(0)
    b, h, q, k = 3, 2, 5, 7
    for _ in range(20):
        key_valid = rng.random((b, k)) < 0.7
        qs, ks = rng.integers(0, 2, (b, q)), rng.integers(0, 2, (b, k))
        qp, kp = rng.integers(0, 9, (b, q)), rng.integers(0, 9, (b, k))
        length = rng.integers(0, 5, b)
        reach = [(int(x), int(y)) for x, y in rng.integers(0, 6, (h, 2))]
        more = rng.random((1, h, q, k)) < 0.9
        got = compile_visibility(
            b, h, q, k, key_valid=key_valid, query_segment=qs, key_segment=ks, query_positions=qp, key_positions=kp,
            prefix_length=length, window=reach, extra={"blocks": more},
        )  # fmt: skip

        def sees(n: int, m: int, i: int, j: int, drawn=(key_valid, qs, ks, qp, kp, length, reach, more)) -> bool:
            valid, qs, ks, qp, kp, length, reach, more = drawn
            here, there = int(qp[n, i]), int(kp[n, j])
            # As a prefix language model says it: prefix rows see the prefix, the others their past.
            topology = there < length[n] if here < length[n] else there <= here
            near = here - reach[m][0] <= there <= here + reach[m][1]
            return bool(valid[n, j] and qs[n, i] == ks[n, j] and topology and near and more[0, m, i, j])

        assert (relation(got) == edge_by_edge((b, h, q, k), sees)).all()
        assert got.handoff.head_sharing == "per_head"
        assert got.handoff.names() == ("key_valid", "segments", "prefix", "window", "blocks")


def test_axes_that_do_not_vary_are_stored_once() -> None:
    assert compile_visibility(2, 4, 3, 5).mask.shape == (1, 1, 1, 1)
    assert compile_visibility(2, 4, 3, 5, key_valid=np.ones((2, 5), bool)).handoff.axes == (2, 1, 1, 5)
    assert compile_visibility(2, 4, 3, 3, causal=True).handoff.axes == (1, 1, 3, 3)
    assert compile_visibility(2, 2, 3, 3, window=[(0, 0), (None, 1)]).handoff.axes == (1, 2, 3, 3)


@pytest.mark.parametrize("chunk", [1, 2, 3, 7])
def test_chunked_decode_equals_the_whole(chunk: int) -> None:
    whole = compile_visibility(1, 1, 7, 7, causal=True, window=(4, 0)).relation
    rows = [
        compile_visibility(1, 1, min(chunk, 7 - at), 7, causal=True, window=(4, 0), cache_offset=at).relation
        for at in range(0, 7, chunk)
    ]
    assert (np.concatenate(rows, axis=2) == whole).all()


def test_a_static_cache_shows_no_unused_slot() -> None:
    filled = np.array([3, 6])
    got = compile_visibility(2, 1, 2, 8, causal=True, cache_offset=filled - 2, key_valid=cache_slots(filled, 8))
    for n, length in enumerate(filled):
        alone = vis.lower_right(2, int(length))
        assert (relation(got)[n, 0, :, :length] == alone).all()
        assert not relation(got)[n, 0, :, length:].any()
    assert got.handoff.batch_layout == "cache"
    assert got.handoff.offset == (1, 4)


def test_left_padding_keeps_what_each_row_sees_alone() -> None:
    lengths = [2, 5]
    valid = left_padded(lengths, 5)
    # Positions count real tokens; key validity hides the padding that shares position 0 with the first token.
    by_position = compile_visibility(
        2, 1, 5, 5, causal=True, key_valid=valid, query_valid=valid,
        query_positions=positions_of(valid), key_positions=positions_of(valid),
    )  # fmt: skip
    by_index = compile_visibility(2, 1, 5, 5, causal=True, key_valid=valid)
    for n, length in enumerate(lengths):
        real = slice(5 - length, 5)
        for got in (by_position, by_index):
            assert (relation(got)[n, 0, real, real] == vis.upper_left(length, length)).all()
            assert not relation(got)[n, 0, real, : 5 - length].any()
    assert by_position.query_valid is not None
    assert (by_position.query_valid == valid).all()
    assert "left" in by_position.handoff.key_valid


def test_query_validity_stays_out_of_the_relation() -> None:
    real = right_padded([1, 3], 3)
    got = compile_visibility(2, 1, 3, 3, key_valid=real, query_valid=real)
    assert relation(got).any(axis=-1).all()
    assert "4 of 6" in got.handoff.query_valid
    assert got.visibility().query_valid is not None


def test_packing_three_four_five_four() -> None:
    layout = packed([3, 4, 5, 4])
    assert layout.cu_seqlens == (0, 3, 7, 12, 16)
    assert layout.pairs == {"padded": 100, "independent": 66, "unrestricted": 256}
    got = compile_visibility(1, 1, 16, 16, query_segment=layout.segment, key_segment=layout.segment)
    assert relation(got).sum() == 66
    causal = compile_visibility(
        1, 1, 16, 16, causal=True, query_segment=layout.segment, key_segment=layout.segment,
        query_positions=layout.position, key_positions=layout.position,
    )  # fmt: skip
    for start, end in zip(layout.cu_seqlens, layout.cu_seqlens[1:], strict=False):
        assert (relation(causal)[0, 0, start:end, start:end] == vis.upper_left(end - start, end - start)).all()
    assert relation(causal).sum() == sum(n * (n + 1) // 2 for n in (3, 4, 5, 4))


def test_a_chain_of_candidates_is_lower_right_causal_and_branches_stay_apart() -> None:
    chain = compile_visibility(1, 1, 3, 8, parents=[-1, 0, 1])
    assert (relation(chain) == vis.lower_right(3, 8)).all()
    # Two branches from one root: 0 -> 1 -> 3 and 0 -> 2.
    tree = compile_visibility(1, 1, 4, 6, parents=[-1, 0, 0, 1])
    assert relation(tree)[0, 0, :, :2].all()
    assert relation(tree)[0, 0, :, 2:].astype(int).tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]]
    buffer = compile_visibility(1, 1, 2, 9, parents=[-1, -1], cache_offset=4)
    assert relation(buffer)[0, 0].astype(int).tolist() == [[1, 1, 1, 1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 0, 1, 0, 0, 0]]


def test_ancestors_agree_with_walking_up() -> None:
    rng = np.random.default_rng(1)
    parents = np.array([int(rng.integers(-1, i)) if i else -1 for i in range(12)])
    sees = ancestors(parents)
    for i in range(12):
        up, found = i, set()
        while up >= 0:
            found.add(up)
            up = int(parents[up])
        assert set(np.flatnonzero(sees[i])) == found


def test_cross_attention_takes_memory_validity_and_no_triangle() -> None:
    memory = right_padded([2, 3], 3)
    got = compile_visibility(2, 1, 4, 3, key_valid=memory, cross_attention=True)
    assert (relation(got) == memory[:, None, None, :]).all()
    assert got.handoff.topology == "cross"
    with pytest.raises(VisibilityError, match="causal with cross_attention"):
        compile_visibility(2, 1, 4, 3, causal=True, cross_attention=True)
    with pytest.raises(VisibilityError, match="different sequences"):
        got.also("causal", np.ones((1, 1, 4, 3), bool), by="is_causal flag")


REFUSED = [
    ({"prefix_length": 2, "causal": True}, "causal together with prefix_length"),
    ({"parents": [-1, 0], "causal": True}, "causal together with parents"),
    ({"parents": [-1, 0], "prefix_length": 1}, "prefix_length together with parents"),
    ({"parents": [-1, 0], "window": (1, 0)}, "window together with parents"),
    ({"parents": [-1, 1]}, r"parents\[1\] = 1"),
    ({"parents": [-1, 0], "cache_offset": 4}, "slots 4 to 5"),
    ({"causal": True}, "aligned in more than one way"),
    ({"window": (1, 1)}, "aligned in more than one way"),
    ({"causal": True, "alignment": "bottom"}, "alignment = 'bottom'"),
    ({"causal": True, "alignment": "upper_left", "cache_offset": 3}, "both place the queries"),
    ({"causal": True, "alignment": "positions"}, "give query_positions or cache_offset"),
    ({"causal": True, "cache_offset": 3, "query_positions": [3, 4]}, "give one of them"),
    ({"causal": True, "key_positions": [0, 1, 2, 3, 4]}, "key_positions without query_positions"),
    ({"causal": True, "query_positions": [3]}, r"query_positions has shape \[1\]"),
    ({"causal": True, "cache_offset": 1.5}, "cache_offset = 1.5"),
    ({"window": (-1, 0), "alignment": "upper_left"}, "at least 0"),
    ({"window": [(1, 0)], "alignment": "upper_left"}, "window has 1 pairs"),
    ({"key_valid": np.ones((3, 5), bool)}, "key_valid has shape"),
    ({"key_valid": np.ones((2, 5))}, "key_valid has dtype float64"),
    ({"query_segment": [0, 1]}, "give both or neither"),
    ({"extra": {"blocks": np.ones((2, 5), bool)}}, "blocks has shape"),
    ({"extra": {"blocks": np.ones((1, 1, 2, 5))}}, "blocks has dtype"),
    (
        {"causal": True, "cache_offset": 3, "extra": {"prefix": np.ones((1, 1, 2, 5), bool)}},
        "already applied by compiler",
    ),
]


@pytest.mark.parametrize(("asked", "message"), REFUSED)
def test_contradictions_are_refused_by_name(asked: dict, message: str) -> None:
    with pytest.raises(VisibilityError, match=message):
        compile_visibility(2, 3, 2, 5, **asked)


def test_a_prefix_with_a_causal_flag_would_hide_prefix_keys() -> None:
    """Why the two are refused together: the conjunction is not the prefix relation."""
    with_flag = vis.compose(vis.prefix(4, 4, 3), vis.upper_left(4, 4))
    assert (vis.prefix(4, 4, 3) & ~with_flag)[0].tolist() == [False, True, True, False]
    compiled = compile_visibility(1, 1, 4, 4, prefix_length=3)
    with pytest.raises(VisibilityError, match="'prefix' was already applied by compiler"):
        compiled.also("causal", vis.upper_left(4, 4)[None, None], by="is_causal flag")


def test_the_record_says_who_applied_what_and_forbids_causal_twice() -> None:
    compiled = compile_visibility(1, 2, 3, 5, causal=True, cache_offset=2, key_valid=np.arange(5) < 5)
    record = compiled.handoff
    assert [(a.predicate, a.by) for a in record.predicates] == [("key_valid", "compiler"), ("causal", "compiler")]
    assert (record.polarity, record.topology, record.offset) == ("true_means_visible", "causal", (2,))
    with pytest.raises(VisibilityError, match="'causal' was already applied by compiler"):
        record.applied("causal", by="is_causal flag")
    more = compiled.also("memory", np.arange(5)[None, None, None] != 1, by="application")
    assert more.handoff.predicates[-1].by == "application"
    assert (more.relation == compiled.relation & (np.arange(5) != 1)).all()
    with pytest.raises(VisibilityError, match="already applied"):
        more.also("memory", np.ones((1, 1, 1, 5), bool), by="application")
    once = record.lowered_to("sdpa_bool", by="adapter")
    with pytest.raises(VisibilityError, match="already lowered to 'sdpa_bool'"):
        once.lowered_to("additive", by="kernel")
    assert json.loads(json.dumps(record.as_dict()))["predicates"][1]["detail"] == "positions"


def test_a_mask_that_changed_after_compilation_is_refused() -> None:
    compiled = compile_visibility(1, 1, 2, 2, causal=True)
    with pytest.raises(ValueError, match="read-only"):
        compiled.mask[0, 0, 0, 1] = True
    other = Compiled(np.ones((1, 1, 2, 2), bool), None, compiled.handoff)
    with pytest.raises(VisibilityError, match="changed after it was compiled"):
        other.visibility()


def test_rows_before_the_lower_right_diagonal_see_nothing() -> None:
    got = relation(compile_visibility(1, 1, 5, 2, causal=True, alignment="lower_right"))[0, 0]
    assert got.any(axis=-1).tolist() == [False, False, False, True, True]
