"""Attention with ALiBi slopes as arrays: problems to try, and what the spec makes of them in any number system."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from attnspec.pyspec import alibi, attention
from attnspec.pyspec.attention import Inputs, Params
from attnspec.pyspec.calls.formats import round_to
from attnspec.pyspec.domain import Domain
from attnspec.pyspec.visibility import lower_right


@dataclass(frozen=True)
class Problem:
    """Attention with slopes in float64 arrays: query, key, value, bias, grad_output, slopes [Hq], visible, scale."""

    query: np.ndarray
    key: np.ndarray
    value: np.ndarray
    bias: np.ndarray
    grad: np.ndarray
    slopes: np.ndarray
    visible: np.ndarray
    scale: float = 0.5

    @property
    def away(self) -> np.ndarray:
        return alibi.distances(*self.visible.shape[2:])


def drawn(seed: int, dtype: str = "float64", sizes: tuple[int, int] = (3, 5), *, causal: bool = False) -> Problem:
    """Two in the batch and three heads; without `causal` any mask with an empty row."""
    rng = np.random.default_rng([seed, 17])
    queries, keys = sizes

    def normal(*shape: int) -> np.ndarray:
        return round_to(dtype, rng.standard_normal(shape))

    visible = rng.random((2, 3, queries, keys)) < 0.7
    visible[:, :, 1:2] = False
    if causal:
        visible = np.broadcast_to(lower_right(queries, keys), visible.shape)
    return Problem(
        normal(2, 3, queries, 2),
        normal(2, 3, keys, 2),
        normal(2, 3, keys, 4),
        normal(2, 3, queries, keys),
        normal(2, 3, queries, 4),
        round_to(dtype, 2.0 ** -rng.integers(0, 8, size=3) * rng.choice([-1.0, 1.0, 1.25], size=3)),
        visible,
    )


def column(slopes: np.ndarray) -> np.ndarray:
    return slopes[None, :, None, None]


def run(dom: Domain[Any], x: Problem) -> dict[str, Any]:
    """Scores, output and gradients with slopes, as the spec writes them."""
    p = Params(x.scale, x.visible)
    plain = Inputs(dom.lift(x.query), dom.lift(x.key), dom.lift(x.value))
    parts = [attention.scaled_scores(dom, p, plain), dom.lift(x.bias)]
    parts.append(alibi.slope_bias(dom, dom.lift(column(x.slopes)), x.away))
    s, grad = dom.add_up("biased", parts), dom.lift(x.grad)
    w = dom.softmax(x.visible, s)
    out = dom.output(w, plain.value)
    gs = dom.scores_grad(w, attention.weights_grad(dom, p, plain, grad), out, grad)
    gm = alibi.slope_gradient(dom, gs, x.away, batch=x.visible.shape[0])
    return {"scores": s, "output": out, "scores_grad": gs, "grad_slopes": gm}
