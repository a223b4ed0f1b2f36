"""The order in which the claims are asked."""

from __future__ import annotations

from attnspec.certify.trials import registered
from attnspec.certify.trials.order import EARLY, in_order


def test_early_claims_exist_and_come_first_each_once() -> None:
    names = list(registered())
    assert tuple(names[: len(EARLY)]) == EARLY
    assert len(set(names)) == len(names)


def test_all_others_keep_their_order() -> None:
    assert in_order(["b", "scale", "a", "lse-agreement"]) == ["lse-agreement", "scale", "b", "a"]
