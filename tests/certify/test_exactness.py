"""What the exactness witness takes to be free of rounding."""

from __future__ import annotations

import numpy as np
import pytest

from attnspec.certify.campaign.parts import default_parts
from attnspec.certify.properties.exact import _exact_sum
from attnspec.certify.subjects.numpy_reference import NumpyReference
from attnspec.certify.trials import Held, check, registered
from attnspec.pyspec.calls.formats import is_representable
from attnspec.strategies.exact_calls import _odd


def test_a_sum_is_exact_as_long_as_the_format_counts_that_far() -> None:
    ones = np.ones((1, 256)), np.ones((256, 1))
    assert _exact_sum(*ones, "bfloat16")
    assert not _exact_sum(np.ones((1, 257)), np.ones((257, 1)), "bfloat16")
    assert _exact_sum(np.ones((1, 257)), np.ones((257, 1)), "float16")


def test_heads_of_a_group_add_up_on_the_grid_of_one() -> None:
    # 258 = 2 · 129 is a number of bfloat16, and 257, which the running sum passes, is none.
    one = np.ones((1, 129)), np.ones((129, 1))
    assert _exact_sum(*one, "bfloat16")
    assert not _exact_sum(*one, "bfloat16", 2)


@pytest.mark.parametrize("length", [1, 2, 7, 40])
def test_an_odd_array_sums_to_zero(length: int) -> None:
    x = _odd(np.random.default_rng(0).integers(-9, 10, (2, 3, length, 4)).astype(np.float64))
    assert not x.sum(axis=2).any()
    assert np.array_equal(x, -x[:, :, ::-1])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_some_witnesses_pass_sums_that_the_storage_does_not_hold(dtype: str) -> None:
    prop, reference = registered()["exactness-witness"], NumpyReference()
    seen = set()
    for index in range(40):
        call = prop.prepare(default_parts().call_at(2, index, "smoke", reference.capabilities, dtype, prop.small))
        if call is None or call.grad_output is None:
            continue
        assert not check(prop, call, Held(reference, reference.ledger)).outcome.refuted
        # Partial sums over queries and keys of what the gradients are sums of; 2^-m times these.
        for name, x in (("key", call.query), ("query", call.key), ("value", call.grad_output)):
            sums = np.cumsum(x, axis=2)
            if not is_representable(dtype, sums).all() and not sums[:, :, -1].any():
                seen.add(name)
    assert "key" in seen
    assert "value" in seen
