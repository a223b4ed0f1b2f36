"""The oracle: does an observed tensor lie within its allowed error of the exact one?

Cheap first: the float64 value with its own rigorous error decides nearly every element. Only elements that it
cannot decide go to balls, whose precision doubles until they are decided. The filter is exact: it never
changes a verdict, because "inside" and "outside" are both claimed only when the enclosure proves them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from flint import arb

from attnspec.pyspec.calls.call import AttentionCall
from attnspec.pyspec.domains.ball import BallDomain, outward, precision
from attnspec.pyspec.evaluate import evaluate
from attnspec.pyspec.oracle.bound import BoundDomain
from attnspec.pyspec.oracle.ledger import NUMPY_FLOAT64

PRECISIONS = (113, 226, 452, 904)

# Relative error of the few float64 operations between a distance and the comparison with its bound.
_OWN_ROUNDING = 2.0**-50

# Relative error up to which the float64 enclosure is shown as the exact value.
_SHARP = 2.0**-44

View = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Judgement:
    """Verdict on one tensor: `worst` is the largest error ÷ bound, at `index`, where the numbers stand."""

    tensor: str
    inside: bool
    worst: float
    index: tuple[int, ...] | None
    observed: float
    exact: tuple[float, float]
    bound: float
    outside_count: int
    undecided_count: int
    escalated_count: int
    size: int

    @property
    def outside(self) -> bool:
        """Is an element proved outside?"""
        return self.outside_count > 0

    @property
    def undecided(self) -> bool:
        """Is no element outside, but one undecided?"""
        return not self.outside and self.undecided_count > 0


def _same(a: np.ndarray) -> np.ndarray:
    return a


class Oracle:
    """Exact values of one call, evaluated lazily and kept. `adaptive=False` always uses balls."""

    def __init__(self, call: AttentionCall, *, adaptive: bool = True) -> None:
        self.call = call
        self.adaptive = adaptive
        self._fast: dict[str, tuple[np.ndarray, np.ndarray]] | None = None
        self._balls: dict[int, dict[str, np.ndarray]] = {}

    def tensors(self) -> tuple[str, ...]:
        """Names of the tensors that the spec defines for this call."""
        return tuple(self.fast())

    def fast(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Float64 values and rigorous errors by tensor."""
        if self._fast is None:
            domain = BoundDomain(NUMPY_FLOAT64)
            self._fast = {n: _squeeze(n, domain.lower(t)) for n, t in evaluate(domain, self.call).items()}
        return self._fast

    def balls(self, bits: int) -> dict[str, np.ndarray]:
        """Object arrays of enclosures by tensor, at that precision."""
        if bits not in self._balls:
            with precision(bits):
                found = evaluate(BallDomain(), self.call)
            self._balls[bits] = {n: _outside(n, t) for n, t in found.items()}
        return self._balls[bits]

    def enclosure(self, tensor: str, bits: int = PRECISIONS[0]) -> tuple[np.ndarray, np.ndarray]:
        """Float64 lower and upper bounds of the exact tensor."""
        return BallDomain().lower(self.balls(bits)[tensor])

    def judge(self, tensor: str, observed: np.ndarray, bound: np.ndarray, view: View = _same) -> Judgement:
        """Is |observed - exact| ≤ bound everywhere? `view` maps the exact tensor to the observed one's frame."""
        value, own_error = (view(a) for a in self.fast()[tensor])
        observed = np.asarray(observed, dtype=np.float64)
        if observed.shape != value.shape or bound.shape != value.shape:
            raise ValueError(
                f"{tensor}: observed {list(observed.shape)} and bound {list(bound.shape)} "
                f"must have the exact tensor's shape {list(value.shape)}"
            )
        with np.errstate(all="ignore"):
            # Equal infinities agree.
            distance = np.subtract(observed, value, out=np.zeros(value.shape), where=observed != value)
            distance = np.abs(distance, out=distance)
            if self.adaptive and bool((distance * (1.0 + _OWN_ROUNDING) + own_error <= bound).all()):
                return _all_inside(tensor, observed, value, own_error, bound, distance)
            # Any other comparison with a number that is not finite is infinitely far off.
            distance[np.isnan(distance)] = np.inf
            free = np.isinf(bound)
            doubt = own_error + distance * _OWN_ROUNDING
            inside = free | (distance + doubt <= bound)
            outside = ~free & (distance - doubt > bound)
        if not self.adaptive:
            inside, outside = free.copy(), np.zeros_like(free)
        open_ = ~(inside | outside)
        escalated = int(open_.sum())
        undecided = 0
        if escalated:
            undecided = self._escalate(tensor, observed, bound, view, open_, inside, outside, distance)
        return self._report(tensor, observed, bound, view, distance, free, outside, undecided, escalated)

    def _escalate(
        self,
        tensor: str,
        observed: np.ndarray,
        bound: np.ndarray,
        view: View,
        open_: np.ndarray,
        inside: np.ndarray,
        outside: np.ndarray,
        distance: np.ndarray,
    ) -> int:
        """Decide the open elements with balls, in place; return how many stay open at the last precision."""
        for bits in PRECISIONS:
            exact = view(self.balls(bits)[tensor])
            with precision(bits):
                for where in np.argwhere(open_):
                    i = tuple(where)
                    if not np.isfinite(observed[i]) or not exact[i].is_finite():
                        same = observed[i] == float(exact[i].mid()) and exact[i].is_exact()
                        inside[i], outside[i] = (
                            same,
                            not same and (exact[i].is_finite() or exact[i].is_exact()),
                        )
                        distance[i] = 0.0 if same else np.inf
                    else:
                        gap = abs(exact[i] - arb(float(observed[i])))
                        inside[i], outside[i] = bool(gap <= bound[i]), bool(gap > bound[i])
                        distance[i] = outward(gap)[1]
                    open_[i] = not (inside[i] or outside[i])
            if not open_.any():
                break
        return int(open_.sum())

    def _report(
        self,
        tensor: str,
        observed: np.ndarray,
        bound: np.ndarray,
        view: View,
        distance: np.ndarray,
        free: np.ndarray,
        outside: np.ndarray,
        undecided: int,
        escalated: int,
    ) -> Judgement:
        with np.errstate(all="ignore"):
            ratio = np.where(free | (distance == 0.0), 0.0, distance / np.where(bound == 0.0, np.nan, bound))
        ratio = np.where(np.isnan(ratio), np.inf, ratio)
        # A refuted element must be the one shown, whatever the rounding of the ratio.
        ratio = np.where(outside, np.maximum(ratio, np.nextafter(1.0, 2.0)), np.minimum(ratio, 1.0))
        if ratio.size == 0:
            return Judgement(tensor, True, 0.0, None, 0.0, (0.0, 0.0), 0.0, 0, 0, 0, 0)
        i = tuple(int(n) for n in np.unravel_index(int(np.argmax(ratio)), ratio.shape))
        count = int(outside.sum())
        value, error = (float(view(a)[i]) for a in self.fast()[tensor])
        # What is shown of a refuted element should be sharp; balls cost ten times as much where float64 is.
        sharp = self.adaptive and error <= _SHARP * abs(value)
        exact = outward(view(self.balls(PRECISIONS[0])[tensor])[i]) if count and not sharp else _around(value, error)
        return Judgement(
            tensor, count == 0, float(ratio[i]), i, float(observed[i]), exact, float(bound[i]),
            count, undecided, escalated, int(ratio.size),
        )  # fmt: skip


def _around(value: float, error: float) -> tuple[float, float]:
    """value ± error, rounded outwards."""
    if error == 0.0:
        return value, value
    return float(np.nextafter(value - error, -np.inf)), float(np.nextafter(value + error, np.inf))


def _all_inside(
    tensor: str,
    observed: np.ndarray,
    value: np.ndarray,
    own_error: np.ndarray,
    bound: np.ndarray,
    distance: np.ndarray,
) -> Judgement:
    """The ordinary case: float64 alone proves every element inside."""
    if distance.size == 0:
        return Judgement(tensor, True, 0.0, None, 0.0, (0.0, 0.0), 0.0, 0, 0, 0, 0)
    # Inside with a bound of zero means a distance of zero; where the bound is infinite any distance will do.
    ratio = distance / np.where(bound == 0.0, 1.0, bound)
    if not distance.max() < np.inf:
        ratio = np.where(np.isinf(bound), 0.0, ratio)
    i = tuple(int(n) for n in np.unravel_index(int(ratio.argmax()), ratio.shape))
    exact = _around(float(value[i]), float(own_error[i]))
    return Judgement(
        tensor, True, min(float(ratio[i]), 1.0), i, float(observed[i]), exact,
        float(bound[i]), 0, 0, 0, int(ratio.size),
    )  # fmt: skip


def _squeeze(name: str, pair: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    return _outside(name, pair[0]), _outside(name, pair[1])


def _outside(name: str, a: np.ndarray) -> np.ndarray:
    """LSE is a column inside the spec and a [B,Hq,Q] tensor outside; the sink's gradient is [1,Hq,1,1] and [Hq]."""
    if name == "lse":
        return a[..., 0]
    return a[0, :, 0, 0] if name == "grad_sink" else a


def bounds(call: AttentionCall, ledger: object) -> dict[str, np.ndarray]:
    """Allowed absolute error of every tensor of the call, by name, derived from the spec under a ledger."""
    from attnspec.pyspec.oracle.ledger import Ledger

    if not isinstance(ledger, Ledger):
        raise TypeError(f"ledger {ledger!r}: expected an attnspec.pyspec.oracle.ledger.Ledger")
    domain = BoundDomain(ledger)
    return {n: _squeeze(n, domain.lower(t))[1] for n, t in evaluate(domain, call).items()}
