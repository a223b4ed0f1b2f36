"""Functions that draw their own dropout: torch's own hold, and each planted mistake is refuted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from attnspec.certify.trials import Outcome, registered
from tests.certify import drawn

torch = pytest.importorskip("torch")

from tests.certify import sampling_functions as functions  # noqa: E402


def outcomes(function: Callable[..., Any], dtype: str, count: int) -> list[Outcome]:
    subject = functions.subject(function)
    prop = registered()["dropout-own-mask"]
    assert prop.needs(subject.capabilities) is None
    return list(drawn.outcomes(subject, prop, dtype, count, seed=2))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("function", [functions.plain, functions.functional], ids=lambda f: f.__name__)
def test_right_functions_hold(function: Callable[..., Any], dtype: str) -> None:
    found = outcomes(function, dtype, 3)
    assert [o for o in found if o.skip is None]
    assert not [o.text or o.worst for o in found if o.refuted]


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
    assert any(words in (o.text or "") for o in refuted), [o.text for o in refuted]
