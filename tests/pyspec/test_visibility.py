"""Each visibility constructor against its definition, position by position."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from attnspec.pyspec import visibility

SIZES = [(0, 0), (0, 3), (3, 0), (1, 1), (2, 5), (5, 2), (4, 4), (7, 3)]
each_size = pytest.mark.parametrize(("queries", "keys"), SIZES)


def is_exactly(mask: np.ndarray, queries: int, keys: int, sees: Callable[[int, int], bool]) -> None:
    assert mask.dtype == np.bool_
    assert mask.shape == (queries, keys)
    for i, j in itertools.product(range(queries), range(keys)):
        assert bool(mask[i, j]) is sees(i, j), (i, j)


@each_size
def test_full_and_empty(queries: int, keys: int) -> None:
    is_exactly(visibility.full(queries, keys), queries, keys, lambda i, j: True)
    is_exactly(visibility.empty(queries, keys), queries, keys, lambda i, j: False)


@each_size
@pytest.mark.parametrize("offset", [-9, -1, 0, 1, 2, 9])
def test_causal(queries: int, keys: int, offset: int) -> None:
    is_exactly(visibility.causal(queries, keys, offset), queries, keys, lambda i, j: j - i <= offset)


@each_size
def test_both_corners(queries: int, keys: int) -> None:
    upper, lower = visibility.upper_left(queries, keys), visibility.lower_right(queries, keys)
    is_exactly(upper, queries, keys, lambda i, j: j <= i)
    # Counted from the other end: the last query sees every key, the one before it all but the last.
    is_exactly(lower, queries, keys, lambda i, j: (keys - 1 - j) >= (queries - 1 - i))
    if queries and keys:
        assert lower[-1].all()
        assert upper[0].sum() == 1
        assert (queries == keys) == np.array_equal(upper, lower) or min(queries, keys) < 2


@each_size
@pytest.mark.parametrize(
    ("left", "right", "offset"), [(0, 0, 0), (1, 0, 0), (2, 1, -1), (0, 3, 2), (9, 9, 0), (-1, 2, 0)]
)
def test_window(queries: int, keys: int, left: int, right: int, offset: int) -> None:
    found = visibility.window(queries, keys, left, right, offset)
    is_exactly(found, queries, keys, lambda i, j: j in range(i + offset - left, i + offset + right + 1))


@each_size
@pytest.mark.parametrize("length", [0, 1, 2, 9])
@pytest.mark.parametrize("offset", [0, -2, 1])
def test_prefix(queries: int, keys: int, length: int, offset: int) -> None:
    found = visibility.prefix(queries, keys, length, offset)
    is_exactly(found, queries, keys, lambda i, j: j < length or j <= i + offset)


def test_key_padding() -> None:
    valid = np.array([True, False, True])
    is_exactly(visibility.key_padding(4, valid), 4, 3, lambda i, j: j != 1)
    assert visibility.key_padding(0, valid).shape == (0, 3)
    assert visibility.key_padding(2, np.zeros(0, bool)).shape == (2, 0)
    visibility.key_padding(2, valid)[0, 0] = False  # a fresh array each time
    assert visibility.key_padding(2, valid)[0, 0]


def test_segments() -> None:
    query, key = np.array([0, 0, 1, 3]), np.array([0, 1, 1, 2])
    found = visibility.segments(query, key)
    is_exactly(found, 4, 4, lambda i, j: [0, 0, 1, 3][i] == [0, 1, 1, 2][j])
    assert not found[3].any()


def test_compose() -> None:
    a, b, c = visibility.upper_left(4, 4), visibility.window(4, 4, 1, 1), visibility.key_padding(4, np.arange(4) != 2)
    is_exactly(visibility.compose(a, b, c), 4, 4, lambda i, j: bool(a[i, j] and b[i, j] and c[i, j]))
    assert np.array_equal(visibility.compose(a, b), visibility.compose(b, a))
    assert np.array_equal(visibility.compose(a), a)
    assert not visibility.compose(a, visibility.empty(4, 4)).any()
    with pytest.raises(ValueError, match="at least one visibility relation"):
        visibility.compose()
