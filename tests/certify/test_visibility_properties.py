"""Visibility properties refute the bug that each is about, by name, and hold the subject without it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pytest

from attnspec.certify.campaign.selfcheck import _mean_on_empty_rows
from attnspec.certify.observation import Observation
from attnspec.certify.properties.policies import declared_contract
from attnspec.certify.subject import Subject
from attnspec.certify.subjects.numpy_reference import NumpyReference
from attnspec.certify.trials import Outcome, registered
from attnspec.pyspec import AttentionCall, make_call
from attnspec.strategies import Features
from tests.certify import drawn
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
    return drawn.outcomes(subject, prop, dtype, cases, 3, features)


def first_refutation(prop_id: str, subject: Subject, dtype: str = "float32", cases: int = 60) -> Outcome | None:
    return next((o for o in checks(prop_id, subject, dtype, cases) if o.refuted), None)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("name", "prop_id"), planted.PLANTED.items())
def test_each_planted_bug_is_refuted_by_the_property_that_names_it(name: str, prop_id: str, dtype: str) -> None:
    found = first_refutation(prop_id, getattr(planted, name), dtype, CASES)
    assert found is not None
    assert not found.failures, "refuted by numbers, not by a crash"


@pytest.mark.parametrize("prop_id", VISIBILITY + POLICIES)
def test_the_subject_without_a_bug_is_held(prop_id: str) -> None:
    found = list(checks(prop_id, planted.unplanted))
    tested = [o for o in found if o.skip is None]
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


@dataclass(frozen=True)
class Blind(planted.WrongVisibility):
    """Rows without a key come out as `fill`, or as the mean of all values."""

    fill: float | None = None

    def run(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Observation:
        seen = NumpyReference().run(call, raw)
        tensors = dict(seen.tensors)
        if self.fill is None:
            return replace(seen, tensors=_mean_on_empty_rows(call, tensors))
        tensors["output"][~call.visible.any(axis=-1)] = self.fill
        return seen


def blind(contract: str | None, fill: float | None) -> Blind:
    claims = replace(NumpyReference().capabilities, empty_rows=contract == "zeros", empty_row_contract=contract)
    return Blind(f"blind, {contract}", lambda call: call, claims=claims, fill=fill)


@pytest.mark.parametrize(("contract", "fill"), [("zeros", 0.0), ("nan", np.nan), ("mean_of_values", None)])
def test_a_declared_contract_is_held(contract: str, fill: float | None) -> None:
    subject = blind(contract, fill)
    assert declared_contract(subject.capabilities) == contract
    found = list(checks("policy-backend-contract", subject))
    assert not any(o.refuted for o in found)
    assert any(o.skip is None for o in found)


@pytest.mark.parametrize(
    ("contract", "fill"), [("zeros", np.nan), ("zeros", None), ("nan", 0.0), ("mean_of_values", 0.0)]
)
def test_a_contract_that_is_not_kept_is_refuted(contract: str, fill: float | None) -> None:
    assert first_refutation("policy-backend-contract", blind(contract, fill)) is not None


def test_without_a_contract_there_is_nothing_to_hold() -> None:
    claims = blind(None, 0.0).capabilities
    lacking = registered()["policy-backend-contract"].needs(claims)
    assert lacking is not None
    assert lacking.feature == "empty_row_rule"


class Peeks(planted.WrongVisibility):
    """Keeps the last key for rows that the policy was to empty: it reads key 0 wherever nothing else is visible."""

    def run(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Observation:
        mask = np.array(call.visible)
        mask[..., :1] |= mask.sum(axis=-1, keepdims=True) == 1
        return NumpyReference().run(planted.with_mask(call, mask), raw)


@pytest.mark.parametrize("prop_id", ["policy-sanitize", "policy-sentinel-key", "policy-reject"])
def test_policies_refute_a_kernel_that_reads_one_key_too_many(prop_id: str) -> None:
    assert first_refutation(prop_id, Peeks("peeks", lambda call: call)) is not None
