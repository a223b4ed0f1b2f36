"""Factoring a visibility table into the kernel's own words loses nothing."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from attnspec.strategies import call_at

from .calls import ZooCall
from .native import Words, native
from .reference import visible_edges


def meaning(words: Words, visible: np.ndarray) -> np.ndarray:
    """The table that the words and their mask give, by the reference's reading of the kernel's arguments."""
    batch, heads, queries, keys = visible.shape
    options = dict(words.options)
    if "segments" in options:
        options["segments"] = tuple(torch.from_numpy(ids) for ids in options["segments"])
    query, key = torch.zeros(batch, heads, queries, 1), torch.zeros(batch, heads, keys, 1)
    mask = None if words.mask is None else torch.from_numpy(words.mask)
    call = ZooCall(query, key, key, query, attn_mask=mask, options=options)
    return visible_edges(call, visible.shape).numpy()


def test_every_factoring_means_the_table_it_came_from() -> None:
    kinds: Counter[str] = Counter()
    for index in range(150):
        visible = np.ascontiguousarray(call_at(0, index, "smoke").visible)
        for words in native(visible):
            kinds[words.kind] += 1
            assert np.array_equal(meaning(words, visible), visible), (index, words)
    assert min(kinds[k] for k in ("causal", "window", "causal window", "segments")) >= 3, kinds


@pytest.mark.parametrize(("queries", "keys"), [(3, 5), (5, 3), (4, 4)])
def test_lower_right_causal_is_recognised(queries: int, keys: int) -> None:
    table = np.tri(queries, keys, keys - queries, dtype=bool)[None, None]
    found = [w for w in native(table) if w.kind == "causal" and w.options["causal"] == "lower_right"]
    assert [w.mask for w in found] == [None]


def test_a_mask_beside_causal_is_the_largest_one() -> None:
    table = np.array([[[[True, False, False], [True, False, False]]]])
    words = next(w for w in native(table) if w.kind == "causal")
    assert words.mask is not None
    assert words.mask[0, 0, 0].tolist() == [True, True, True]
    assert words.mask[0, 0, 1].tolist() == [True, False, True]


def test_everything_visible_and_nothing_visible_are_left_as_masks() -> None:
    assert native(np.ones((1, 1, 2, 2), dtype=bool)) == []
    assert native(np.zeros((1, 1, 2, 2), dtype=bool)) == []
