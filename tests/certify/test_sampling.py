"""Functions that draw their own dropout: torch's own hold, and each planted mistake is refuted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from attnspec.certify.campaign.parts import features_of
from attnspec.certify.properties import Bench, Outcome, registered
from attnspec.strategies import PROFILES, call_at, small

torch = pytest.importorskip("torch")

from tests.certify import sampling_functions as functions  # noqa: E402


def outcomes(function: Callable[..., Any], dtype: str, count: int) -> list[Outcome]:
    subject = functions.subject(function)
    bench, prop, sizes = Bench(subject, subject.ledger), registered()["dropout-own-mask"], small(PROFILES["smoke"])
    assert prop.needs(subject.capabilities) is None
    calls = (prop.prepare(call_at(2, i, sizes, features_of(subject.capabilities, dtype))) for i in range(count))
    return [prop.check(call, bench) for call in calls if call is not None]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("function", [functions.plain, functions.functional], ids=lambda f: f.__name__)
def test_right_functions_hold(function: Callable[..., Any], dtype: str) -> None:
    found = outcomes(function, dtype, 3)
    assert [o for o in found if o.skipped is None]
    assert not [o.broken or o.worst for o in found if o.refuted]


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (functions.before_softmax, ""),
        (functions.on_output, ""),
        (functions.keeps_with_p, "kept"),
        (functions.fresh_mask, "fresh mask in the backward pass"),
    ],
    ids=lambda x: getattr(x, "__name__", "words"),
)
def test_wrong_functions_are_refuted(function: Callable[..., Any], words: str) -> None:
    refuted = [o for o in outcomes(function, "float32", 6) if o.refuted]
    assert refuted
    assert any(words in (o.broken or "") for o in refuted), [o.broken for o in refuted]
