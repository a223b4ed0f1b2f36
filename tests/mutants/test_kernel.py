"""The zoo kernel is right, and each planted bug is really planted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch

from .bug import Bug
from .calls import Tensors, memory, operands, run, same_bits, same_tensor_bits
from .catalogue import BUGS, BY_NAME, count_by_kind, equivalents, live
from .draws import draw
from .kernel import STORAGE_TYPES
from .probes import PROBES, ZooCall
from .reference import expect, worst_ratio

DRAWS = 200


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Tiles are too small to share out, and a fixed count of threads keeps runs comparable."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", STORAGE_TYPES, ids=str)
def test_unmutated_kernel_agrees_with_float64_autograd_within_its_bound(dtype: torch.dtype) -> None:
    worst = 0.0
    for index in range(DRAWS):
        call = draw(index).to(dtype)
        shown = run(call)
        assert not isinstance(shown, str), (index, shown)
        ratio, where = worst_ratio(shown, expect(call))
        assert ratio <= 1.0, (index, where, ratio)
        worst = max(worst, ratio)
        for name, given in operands(call).items():
            assert same_tensor_bits(shown[f"after_{name}"], memory(given)), (index, name)
    assert worst > 0.0, "a run without any rounding error compared nothing"


@pytest.mark.parametrize("dtype", STORAGE_TYPES, ids=str)
def test_unmutated_kernel_agrees_on_every_probing_call(dtype: torch.dtype) -> None:
    for name in PROBES:
        shown = correct(name, dtype)
        if name == "uneven_groups":
            assert shown == "ValueError"
        elif name != "nan_in_hidden_keys":  # the eager reference has no such contract, see below
            assert not isinstance(shown, str)
            assert worst_ratio(shown, expect(PROBES[name]().to(dtype)))[0] <= 1.0, name


def test_nan_in_keys_that_nobody_sees_reaches_nothing() -> None:
    shown = run(PROBES["nan_in_hidden_keys"]())
    assert not isinstance(shown, str)
    assert all(bool(torch.isfinite(shown[n]).all()) for n in ("out", "lse", "g_query", "g_key", "g_value"))


@cache
def probing_call(name: str, dtype: torch.dtype) -> ZooCall:
    return PROBES[name]().to(dtype)


@cache
def correct(name: str, dtype: torch.dtype) -> Tensors | str:
    return run(probing_call(name, dtype))


def changes(bug: Bug, name: str, dtype: torch.dtype) -> bool:
    """Whether the bug changes a bit on a probing call; looks twice where it may show on every other call only."""
    call, runs = probing_call(name, dtype), 2 if "repeat_calls" in bug.needs else 1
    if bug.name == "mixed_types_accepted":
        other = torch.float32 if dtype == torch.float64 else torch.float64
        call = replace(call, key=call.key.to(other))
        return not same_bits(run(call, frozenset({bug.name})), run(call))
    return any(not same_bits(run(call, frozenset({bug.name})), correct(name, dtype)) for _ in range(runs))


@pytest.mark.parametrize("bug", live(), ids=lambda b: b.name)
def test_live_mutant_changes_a_bit_on_a_probing_call(bug: Bug) -> None:
    for dtype_name in bug.dtypes:
        dtype = getattr(torch, dtype_name)
        assert any(changes(bug, name, dtype) for name in PROBES), f"no probing call shows it in {dtype_name}"


@pytest.mark.parametrize("bug", equivalents(), ids=lambda b: b.name)
def test_equivalent_mutant_changes_no_bit(bug: Bug) -> None:
    for dtype in STORAGE_TYPES:
        assert not [name for name in PROBES if changes(bug, name, dtype)], dtype
        for index in range(40):
            call = draw(index).to(dtype)
            assert same_bits(run(call, frozenset({bug.name})), run(call)), (index, dtype)


def test_every_switch_of_the_kernel_is_listed_and_every_listed_one_is_there() -> None:
    source = "".join(p.read_text() for p in (Path(__file__).parent / "kernel").glob("*.py"))
    found = set(re.findall(r'"([a-z0-9_]+)"\s+(?:not )?in (?:call\.)?bugs', source))
    for tail in re.findall(r'f"\{name\}_gradient_([a-z_]+)" in call\.bugs', source):
        found |= {f"{name}_gradient_{tail}" for name in ("query", "key", "value")}
    assert found == set(BY_NAME)
    assert len(BY_NAME) == len(BUGS), "a name is listed twice"


def test_the_zoo_has_at_least_ninety_live_mutants_of_all_kinds() -> None:
    assert len(live()) >= 90
    assert all(b.equivalent for b in equivalents())
    assert min(count_by_kind().values()) >= 1
