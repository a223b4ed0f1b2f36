"""Visibility properties refute the bug that each is about, by name, and hold the subject without it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from certify.properties import Bench, Outcome, registered
from certify.properties.policies import declared_contract
from certify.subject import Subject
from certify.subjects.numpy_reference import NumpyReference
from pyspec import AttentionCall, make_call
from strategies import PROFILES, Features, call_at, small
from tests.certify import planted_visibility as planted

VISIBILITY = (
    "window-law", "prefix-law", "segments-isolated", "key-padding-keys-only", "cached-decoding", "branches-alone",
    "mask-polarity",    "bias-never-revives", "hidden-is-absent",
)  # fmt: skip
POLICIES = ("policy-reject", "policy-sanitize", "policy-sentinel-key", "policy-backend-contract")
CASES = 20


def checks(prop_id: str, subject: Subject, dtype: str = "float32", cases: int = CASES) -> Iterator[Outcome]:
    """Outcomes of a property on generated calls, one after another."""
    prop = registered()[prop_id]
    features = Features(dtypes=(dtype,), any_head_map=False, dropout_multiplier=False)
    bench = Bench(subject, subject.ledger)
    calls = (prop.prepare(call_at(3, i, small(PROFILES["smoke"]), features)) for i in range(cases))
    return (prop.check(call, bench) for call in calls if call is not None)


def first_refutation(prop_id: str, subject: Subject, dtype: str = "float32", cases: int = 60) -> Outcome | None:
    return next((o for o in checks(prop_id, subject, dtype, cases) if o.refuted), None)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("name", "prop_id"), planted.PLANTED.items())
def test_each_planted_bug_is_refuted_by_the_property_that_names_it(name: str, prop_id: str, dtype: str) -> None:
    found = first_refutation(prop_id, getattr(planted, name), dtype, CASES)
    assert found is not None
    assert found.broken is None, "refuted by numbers, not by a crash"


@pytest.mark.parametrize("prop_id", VISIBILITY + POLICIES)
def test_the_subject_without_a_bug_is_held(prop_id: str) -> None:
    found = list(checks(prop_id, planted.unplanted))
    tested = [o for o in found if o.skipped is None]
    assert len(tested) >= CASES // 2
    assert not any(o.refuted for o in tested)


def test_every_planted_bug_is_quiet_where_its_mask_does_not_occur() -> None:
    """A bug on windows, prefixes, padding or rectangles shows on those; one key a row has none of them."""
    call = make_call(np.ones((1, 1, 2, 1)), np.ones((1, 1, 3, 1)), np.arange(3.0).reshape(1, 1, 3, 1))
    for name in (
        "upper_left_for_lower_right",
        "window_off_by_one",
        "prefix_with_causal_flag",
        "key_padding_on_queries",
    ):
        seen = getattr(planted, name).run(call)
        np.testing.assert_array_equal(seen.tensors["output"], NumpyReference().run(call).tensors["output"])


class Blind(planted.WrongVisibility):
    """Wrong on rows without a key: it returns what `fill` says."""

    fill = 0.0

    def run(self, call: AttentionCall, raw=None):  # type: ignore[no-untyped-def]
        seen = NumpyReference().run(call, raw)
        empty = ~call.visible.any(axis=-1)
        seen.tensors["output"][empty] = self.fill
        return seen


class Nan(Blind):
    fill = np.nan
    empty_row_contract = "nan"


class Mean(planted.WrongVisibility):
    """The mean of all values on rows without a key, as a finite sentinel gives it."""

    empty_row_contract = "mean_of_values"

    def run(self, call: AttentionCall, raw=None):  # type: ignore[no-untyped-def]
        from certify.selfcheck import _mean_on_empty_rows

        seen = NumpyReference().run(call, raw)
        _mean_on_empty_rows(call, seen.tensors)  # type: ignore[arg-type]
        return seen


def test_a_contract_is_declared_and_then_held() -> None:
    for kind in (Nan, Mean):
        subject = kind(kind.__name__, lambda call: call)
        found = list(checks("policy-backend-contract", subject))
        assert not any(o.refuted for o in found)
        assert any(o.skipped is None for o in found)
        contract = declared_contract(Bench(subject, subject.ledger))
        assert contract is not None
        assert contract.behaviour == kind.empty_row_contract
    liar = Nan("liar", lambda call: call)
    object.__setattr__(liar, "empty_row_contract", "zeros")
    assert first_refutation("policy-backend-contract", liar) is not None


class Peeks(planted.WrongVisibility):
    """Keeps the last key for rows that the policy was to empty: it reads key 0 wherever nothing else is visible."""

    def run(self, call: AttentionCall, raw=None):  # type: ignore[no-untyped-def]
        mask = np.array(call.visible)
        mask[..., :1] |= mask.sum(axis=-1, keepdims=True) == 1
        return NumpyReference().run(planted.with_mask(call, mask), raw)


@pytest.mark.parametrize("prop_id", ["policy-sanitize", "policy-sentinel-key", "policy-reject"])
def test_policies_refute_a_kernel_that_reads_one_key_too_many(prop_id: str) -> None:
    assert first_refutation(prop_id, Peeks("peeks", lambda call: call)) is not None
