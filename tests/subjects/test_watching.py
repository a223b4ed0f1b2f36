"""A subject that writes where it must not is seen: in an input, around it, or in the output gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attnspec.certify.subjects.functional import FunctionSubject
from attnspec.certify.trials import Held, check, registered
from attnspec.pyspec import Layout, make_call

torch = pytest.importorskip("torch")


def plain(query: Any, key: Any, value: Any) -> Any:
    return torch.softmax(query @ key.mT / query.shape[-1] ** 0.5, -1) @ value


class WritesGradient(torch.autograd.Function):
    """The identity, whose backward pass overwrites the gradient that it is given."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        kept = grad.clone()
        grad.zero_()
        return kept


def writes_query(query: Any, key: Any, value: Any) -> Any:
    out = plain(query, key, value)
    query.data[..., 0, 0] = 7.0  # behind autograd's back
    return out


def writes_past_the_end(query: Any, key: Any, value: Any) -> Any:
    room = torch.empty(0, dtype=key.dtype).set_(key.detach().untyped_storage())
    room[-1] = 3.0
    return plain(query, key, value)


def writes_output_gradient(query: Any, key: Any, value: Any) -> Any:
    return WritesGradient.apply(plain(query, key, value))


@pytest.mark.parametrize(
    ("function", "named"),
    [(plain, None), (writes_query, "query"), (writes_past_the_end, "key"), (writes_output_gradient, "grad_output")],
)
def test_what_is_overwritten_is_named(function: Any, named: str | None) -> None:
    rng = np.random.default_rng(0)
    call = make_call(
        *(rng.integers(-2, 3, (1, 1, 3, 2)).astype(float) for _ in range(3)),
        grad_output=np.ones((1, 1, 3, 2)),
        encoding="none",
        layout=Layout(key="padded"),
    )
    subject = FunctionSubject(function, "tests:function")
    outcome = check(registered()["inputs-unchanged"], call, Held(subject, subject.ledger)).outcome
    assert outcome.skip is None
    assert (named in (outcome.text or "")) if named else not outcome.refuted
