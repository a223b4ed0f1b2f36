"""Small numbers worked out by hand elsewhere, reproduced through `evaluate` to every digit that was printed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attnspec.pyspec import AttentionCall, Dropout, evaluate, make_call, visibility
from attnspec.pyspec.domains import Float64Domain
from attnspec.pyspec.domains.ball import precision
from attnspec.pyspec.dropout import multiplier

FLOATS = Float64Domain()


def printed(found: Any, wanted: Any, digits: int) -> None:
    """Equal when rounded to that many decimals."""
    assert np.round(np.asarray(found, dtype=np.float64), digits).tolist() == np.asarray(wanted).tolist()


def by_scores(scores: list[list[float]], value: np.ndarray | None = None, **fields: Any) -> AttentionCall:
    """A call whose scores are these numbers: they enter as the bias, over a query of no width."""
    rows, keys = np.shape(scores)
    values = np.eye(keys) if value is None else value
    return make_call(
        np.zeros((1, 1, rows, 0)),
        np.zeros((1, 1, keys, 0)),
        values[None, None],
        dtype="float64",
        bias=np.array(scores, dtype=np.float64)[None, None],
        encoding="additive",
        **fields,
    )


def weights(call: AttentionCall) -> np.ndarray:
    """With the identity for values the output is the weights."""
    return evaluate(FLOATS, call)["output"][0, 0]


def test_softmax_of_large_scores() -> None:
    printed(weights(by_scores([[1000.0, 999.0, 998.0]]))[0], [0.66524096, 0.24472847, 0.09003057], 8)


def test_softmax_of_a_tie_far_above_the_rest() -> None:
    printed(weights(by_scores([[3e3, 3e3, 1e3]]))[0], [0.5, 0.5, 0.0], 12)


def test_cosine_scores_cannot_be_sharp() -> None:
    """One score of +1 against 127 of -1."""
    found = weights(by_scores([[1.0] + [-1.0] * 127]))[0]
    printed(found.max(), 0.055, 3)
    assert found.argmax() == 0


P = [[0.753474, 0.246526, 0.0], [0.257122, 0.191056, 0.551822]]
M = [[1, 0, 0], [0, 1, 1]]
V = np.array([[1.0, -1.0], [2.0, 0.5], [-0.5, 3.0]])
G = np.array([[0.7, -0.4], [-0.2, 0.9]])


def traced(value: np.ndarray, **fields: Any) -> dict[str, np.ndarray]:
    """The fixed trace: scores log P, the third key hidden from the first query, dropout at 0.25."""
    seen = np.array(P) > 0
    call = by_scores(
        np.log(np.where(seen, P, 1.0)).tolist(),
        value,
        visible=seen[None, None],
        dropout=Dropout(0.25, multiplier(np.array(M, dtype=bool), 0.25)[None, None]),
        **fields,
    )
    return {n: t[0, 0] for n, t in evaluate(FLOATS, call).items()}


def test_masked_trace_with_dropout() -> None:
    printed(traced(np.eye(3))["output"].sum(axis=-1), [1.004632, 0.990504], 6)
    found = traced(V, grad_output=G[None, None])
    printed(found["output"], [[1.004632, -1.004632], [0.141601, 2.334659]], 6)
    gp = multiplier(np.array(M, dtype=bool), 0.25) * (G @ V.T)
    # P is itself printed to six digits, so what was computed from it before printing may differ in the sixth.
    half = 0.5e-6
    slack = half * (1 + np.abs(gp).sum(axis=-1))
    delta = np.array([1.105096, 2.072873])
    assert (np.abs((np.array(P) * gp).sum(axis=-1) - delta) <= slack).all()
    assert (np.abs((G * found["output"]).sum(axis=-1) - delta) <= slack).all()
    wanted = [[0.272434, -0.272434, 0.0], [-0.532981, -0.383297, 0.916279]]
    centred = np.abs(gp - delta[:, None])
    assert (np.abs(found["grad_bias"] - wanted) <= half * (1 + centred) + np.array(P) * slack[:, None]).all()
    assert found["grad_bias"][0, 2] == 0.0


def test_dropout_of_four_keys() -> None:
    """Variance of a row's sum .075, and all keys lost with probability .0016, by going through all sixteen masks."""
    p, rho = np.array([0.1, 0.2, 0.3, 0.4]), 0.2
    mean = square = lost = 0.0
    for n in range(16):
        keep = np.array([bool(n >> k & 1) for k in range(4)])
        chance = float(np.prod(np.where(keep, 1 - rho, rho)))
        total = float((p * multiplier(keep, rho)).sum())
        mean, square = mean + chance * total, square + chance * total**2
        lost += chance * (not keep.any())
    printed(mean, 1.0, 12)
    printed(square - mean**2, 0.075, 12)
    printed(lost, 0.0016, 12)


def test_packed_pairs() -> None:
    """Four sequences of 3, 4, 5 and 4: pairs visible when padded, packed with segments, and packed without."""
    lengths = [3, 4, 5, 4]
    ends = np.cumsum([0, *lengths])
    assert ends.tolist() == [0, 3, 7, 12, 16]
    segment = np.repeat(np.arange(4), lengths)
    assert len(lengths) * max(lengths) ** 2 == sum(visibility.full(5, 5).sum() for _ in lengths) == 100
    assert visibility.segments(segment, segment).sum() == 66
    assert visibility.full(16, 16).sum() == 256


def test_two_triangles() -> None:
    upper, lower = visibility.upper_left(2, 5), visibility.lower_right(2, 5)
    assert upper.astype(int).tolist() == [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0]]
    assert lower.astype(int).tolist() == [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]


@pytest.mark.parametrize("bias", [7.0, 700.0, 1e300])
def test_no_bias_revives_a_padded_key(bias: float) -> None:
    """Nor does it enter the denominator: the visible keys share as if it were not there."""
    from attnspec.pyspec import Oracle
    from attnspec.pyspec.domains import BallDomain

    padded = visibility.key_padding(1, np.array([True, True, False]))[None, None]
    call = by_scores([[0.0, 1.0, bias]], visible=padded, grad_output=np.ones((1, 1, 1, 3)))
    found = evaluate(FLOATS, call)
    assert found["output"][0, 0, 0, 2] == 0.0
    assert found["grad_bias"][0, 0, 0, 2] == 0.0
    printed(found["output"][0, 0, 0, :2], np.round(weights(by_scores([[0.0, 1.0]], np.eye(2)))[0], 12), 12)
    with precision(113):
        ball = evaluate(BallDomain(), call)["output"][0, 0, 0, 2]
    assert ball.is_exact()
    assert ball == 0
    value, error = Oracle(call).fast()["output"]
    assert (value[0, 0, 0, 2], error[0, 0, 0, 2] < 1e-300) == (0.0, True)
