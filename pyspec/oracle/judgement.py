"""The oracle: does an observed tensor lie within its allowed error of the exact one?

Cheap first: the float64 value with its own rigorous error decides nearly every element. Only elements that it
cannot decide go to balls, whose precision doubles until they are decided. The filter is exact: it never
changes a verdict, because "inside" and "outside" are both claimed only when the enclosure proves them. What stays
open at the highest precision is "undecided", which is neither.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from flint import arb

from attnspec.pyspec.calls.call import AttentionCall
from attnspec.pyspec.domains.ball import BallDomain, outward, precision
from attnspec.pyspec.evaluate import evaluate
from attnspec.pyspec.oracle.bound import BoundDomain
from attnspec.pyspec.oracle.ledger import NUMPY_FLOAT64, Ledger

PRECISIONS = (113, 226, 452, 904)

# Relative error of the few float64 operations between a distance and the comparison with its bound.
_OWN_ROUNDING = 2.0**-50

# Relative error up to which the float64 enclosure is shown as the exact value.
_SHARP = 2.0**-44

View = Callable[[np.ndarray], np.ndarray]
State = Literal["inside", "outside", "undecided"]


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """Verdict on one tensor: `worst` is the largest error ÷ bound, at `index`, where the numbers stand.

    state: "outside" when an element is proved outside, else "undecided" when one stays open at the highest precision,
    else "inside". Of a tensor that is not inside, the worst element of that kind is shown.
    """

    tensor: str
    state: State
    worst: float
    index: tuple[int, ...] | None
    observed: float
    exact: tuple[float, float]
    bound: float
    outside_count: int = 0
    undecided_count: int = 0
    escalated_count: int = 0
    size: int

    @property
    def inside(self) -> bool:
        """Is every element proved inside?"""
        return self.state == "inside"

    @property
    def outside(self) -> bool:
        """Is an element proved outside?"""
        return self.state == "outside"

    @property
    def undecided(self) -> bool:
        """Is nothing proved outside, and not everything inside?"""
        return self.state == "undecided"


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
            self._fast = {n: domain.lower(t) for n, t in evaluate(domain, self.call).items()}
        return self._fast

    def balls(self, bits: int) -> dict[str, np.ndarray]:
        """Object arrays of enclosures by tensor, at that precision."""
        if bits not in self._balls:
            with precision(bits):
                self._balls[bits] = evaluate(BallDomain(), self.call)
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
                # The ordinary case: float64 alone proves every element inside.
                ratio = np.minimum(_ratio(distance, bound), 1.0)
                return _judgement(
                    tensor, observed, bound, ratio, lambda i: _around(float(value[i]), float(own_error[i]))
                )
            # Any other comparison with a number that is not finite is infinitely far off.
            distance[np.isnan(distance)] = np.inf
            free = np.isinf(bound)
            doubt = own_error + distance * _OWN_ROUNDING
            inside = free | (distance + doubt <= bound)
            outside = ~free & (distance - doubt > bound)
        if not self.adaptive:
            inside, outside = free.copy(), np.zeros_like(free)
        found = _Elements(inside, outside, distance)
        escalated = int(found.open.sum())
        if escalated:
            self._escalate(tensor, observed, bound, view, found)
        ratio = np.minimum(_ratio(distance, bound), 1.0)
        if outside.any():
            # A refuted element must be the one shown, whatever the rounding of the ratio.
            ratio = np.where(outside, np.maximum(_ratio(distance, bound), np.nextafter(1.0, 2.0)), ratio)
        elif found.open.any():
            ratio = np.where(found.open, ratio, -1.0)

        def exact(i: tuple[int, ...]) -> tuple[float, float]:
            # What is shown of a refuted element should be sharp; balls cost ten times as much where float64 is.
            near, error = float(value[i]), float(own_error[i])
            if outside.any() and not (self.adaptive and error <= _SHARP * abs(near)):
                return outward(view(self.balls(PRECISIONS[0])[tensor])[i])
            return _around(near, error)

        return _judgement(tensor, observed, bound, ratio, exact, found=found, escalated=escalated)

    def _escalate(self, tensor: str, observed: np.ndarray, bound: np.ndarray, view: View, found: _Elements) -> None:
        """Decide the open elements with balls, in place; some may stay open at the last precision."""
        for bits in PRECISIONS:
            exact = view(self.balls(bits)[tensor])
            with precision(bits):
                for where in np.argwhere(found.open):
                    i = tuple(where)
                    if not np.isfinite(observed[i]) or not exact[i].is_finite():
                        same = observed[i] == float(exact[i].mid()) and exact[i].is_exact()
                        found.inside[i] = same
                        found.outside[i] = not same and (exact[i].is_finite() or exact[i].is_exact())
                        found.distance[i] = 0.0 if same else np.inf
                    else:
                        gap = abs(exact[i] - arb(float(observed[i])))
                        found.inside[i], found.outside[i] = bool(gap <= bound[i]), bool(gap > bound[i])
                        found.distance[i] = outward(gap)[1]
            if not found.open.any():
                break


@dataclass(frozen=True, eq=False)
class _Elements:
    """What is proved of each element, and its distance from the exact value: arrays that are filled in place."""

    inside: np.ndarray
    outside: np.ndarray
    distance: np.ndarray

    @property
    def open(self) -> np.ndarray:
        """Where nothing is proved."""
        return ~(self.inside | self.outside)


def judge_exact(tensor: str, observed: np.ndarray, exact: np.ndarray, bound: np.ndarray) -> Judgement:
    """A judgement against values known exactly as float64 (zeros, ones, another run's result), without an oracle.

    All arrays have one shape. A finite distance is compared as float64 rounds it, so nothing is ever undecided.
    """
    with np.errstate(all="ignore"):
        distance = np.abs(observed - exact)
        distance = np.where(observed == exact, 0.0, np.where(np.isfinite(distance), distance, np.inf))
    ratio = _ratio(distance, bound)
    found = _Elements(ratio <= 1.0, ratio > 1.0, distance)
    return _judgement(tensor, observed, bound, ratio, lambda i: (float(exact[i]), float(exact[i])), found=found)


def _ratio(distance: np.ndarray, bound: np.ndarray) -> np.ndarray:
    """Error ÷ bound: zero where there is no error or an infinite bound, infinite where a bound of zero is missed."""
    with np.errstate(all="ignore"):
        free = np.isinf(bound) | (distance == 0.0)
        ratio = np.where(free, 0.0, distance / np.where(bound == 0.0, np.nan, bound))
    return np.where(np.isnan(ratio), np.inf, ratio)


def _judgement(
    tensor: str,
    observed: np.ndarray,
    bound: np.ndarray,
    ratio: np.ndarray,
    exact: Callable[[tuple[int, ...]], tuple[float, float]],
    *,
    found: _Elements | None = None,
    escalated: int = 0,
) -> Judgement:
    """The judgement that shows the element of the largest ratio; `found` None: every element is inside."""
    if ratio.size == 0:
        return Judgement(
            tensor=tensor, state="inside", worst=0.0, index=None, observed=0.0, exact=(0.0, 0.0), bound=0.0, size=0
        )
    i = tuple(int(n) for n in np.unravel_index(int(ratio.argmax()), ratio.shape))
    outside, undecided = (0, 0) if found is None else (int(found.outside.sum()), int(found.open.sum()))
    return Judgement(
        tensor=tensor,
        state="outside" if outside else "undecided" if undecided else "inside",
        worst=float(ratio[i]),
        index=i,
        observed=float(observed[i]),
        exact=exact(i),
        bound=float(bound[i]),
        outside_count=outside,
        undecided_count=undecided,
        escalated_count=escalated,
        size=int(ratio.size),
    )


def _around(value: float, error: float) -> tuple[float, float]:
    """value ± error, rounded outwards."""
    if error == 0.0:
        return value, value
    return float(np.nextafter(value - error, -np.inf)), float(np.nextafter(value + error, np.inf))


def bounds(call: AttentionCall, ledger: object) -> dict[str, np.ndarray]:
    """Allowed absolute error of every tensor of the call, by name, derived from the spec under a ledger."""
    if not isinstance(ledger, Ledger):
        raise TypeError(f"ledger {ledger!r}: expected an attnspec.pyspec.oracle.ledger.Ledger")
    domain = BoundDomain(ledger)
    found = evaluate(domain, call)
    if "weights" in found:
        # Weights that are handed over are cast to storage, whatever the kernel keeps of them for itself.
        stores = tuple(dict.fromkeys((*ledger.stores, "weights", "consumed")))
        handing_over = BoundDomain(replace(ledger, stores=stores))
        found["weights"] = evaluate(handing_over, call.but(grad_output=None), with_lse=False)["weights"]
    return {n: domain.lower(t)[1] for n, t in found.items()}
