"""Ledgers refuse what they cannot mean, and the named ones say what their kernels do."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from attnspec.pyspec import Ledger, named_ledgers
from attnspec.pyspec.calls.formats import FORMATS
from attnspec.pyspec.domain import STAGES
from attnspec.pyspec.oracle.ledger import FINAL_STAGES, compute_for, every_operation_stored, flash, one_precision

each_dtype = pytest.mark.parametrize("dtype", FORMATS)


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("storage", "float8", "expected one of float64"),
        ("compute", "tf32", "expected one of float64"),
        ("stores", ("softmax",), "unknown stage 'softmax'"),
        ("weights", "lost", "'saved', 'recomputed'"),
        ("delta", "none", "'weights', 'output'"),
        ("key_tile", 0, "positive tile size"),
        ("gradient_tile", -1, "positive tile size"),
        ("exp_error", -1.0, "number >= 0"),
        ("exp_error", float("nan"), "number >= 0"),
        ("exp_argument_roundings", -0.5, "number >= 0"),
    ],
)
def test_a_broken_line_is_named(field: str, value: Any, expected: str) -> None:
    with pytest.raises(ValueError, match=expected) as caught:
        replace(Ledger("mine", "float32", "float32"), **{field: value})
    assert "ledger 'mine'" in str(caught.value)
    assert str(value[0] if isinstance(value, tuple) else value) in str(caught.value)


def test_a_ledger_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        one_precision("float32").storage = "float64"  # type: ignore[misc]


@each_dtype
def test_accumulation(dtype: str) -> None:
    assert compute_for(dtype) == ("float64" if dtype == "float64" else "float32")
    for ledger in named_ledgers(dtype).values():
        assert ledger.storage == dtype
        assert ledger.storage_format.name == dtype
        assert ledger.compute_format.unit_roundoff <= ledger.storage_format.unit_roundoff
        assert set(FINAL_STAGES) <= set(ledger.stores) <= set(STAGES)


@each_dtype
def test_what_the_named_ledgers_claim(dtype: str) -> None:
    low = dtype in ("bfloat16", "float16")
    assert one_precision(dtype).stores == FINAL_STAGES
    assert one_precision(dtype).weights == "saved"
    eager = every_operation_stored(dtype)
    assert {"dot", "scaled", "biased", "weights", "consumed", "consumed_grad", "scores_grad"} <= set(eager.stores)
    assert "lse" not in eager.stores
    fused = flash(dtype, gradient_tile=32, key_tile=512)
    assert (fused.weights, fused.delta, fused.key_tile) == ("recomputed", "output", 512)
    assert ("consumed" in fused.stores) is low
    assert fused.gradient_tile == (32 if low else None)


def test_names_of_ledgers() -> None:
    assert list(named_ledgers("bfloat16")) == ["math", "eager", "flash", "flash-uncast", "float64-inside"]
    found = named_ledgers("bfloat16")
    assert set(found["flash"].stores) - set(found["flash-uncast"].stores) == {"consumed"}
    assert found["float64-inside"].compute == "float64"
