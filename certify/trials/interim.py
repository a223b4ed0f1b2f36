from __future__ import annotations

from dataclasses import replace

import numpy as np

from attnspec.certify.subjects import subject as _s
from attnspec.certify.subjects.subject import Skip
from attnspec.pyspec import Oracle as PlainOracle
from attnspec.pyspec import attention as spec
from attnspec.pyspec import bounds as plain_bounds
from attnspec.pyspec.domains import BallDomain
from attnspec.pyspec.domains.ball import precision
from attnspec.pyspec.evaluate import lift_call
from attnspec.pyspec.families import FamilyOracle, family_bounds
from attnspec.pyspec.oracle.bound import BoundDomain
from attnspec.pyspec.oracle.ledger import NUMPY_FLOAT64


def _w(dom, call):
    params, inputs = lift_call(dom, call)
    w = spec.weights(dom, params, inputs)
    if call.dropout.returned_weights == "after_dropout":
        w = spec.consumed(dom, params, w)
    return {"weights": w}


def _is(call):
    return call.dropout is not None and call.dropout.returned_weights != "none"


class WeightsOracle(PlainOracle):
    def fast(self):
        if self._fast is None:
            d = BoundDomain(NUMPY_FLOAT64)
            super().fast()
            self._fast = {**self._fast, **{n: d.lower(t) for n, t in _w(d, self.call).items()}}
        return self._fast

    def balls(self, bits):
        if "weights" not in self._balls.get(bits, {}):
            super().balls(bits)
            with precision(bits):
                self._balls[bits] = {**self._balls[bits], **_w(BallDomain(), self.call)}
        return self._balls[bits]


def Oracle(call):
    if call.score.name != "dot":
        return FamilyOracle(call)
    return WeightsOracle(call) if _is(call) else PlainOracle(call)


def bounds(call, ledger):
    if call.score.name != "dot":
        return family_bounds(call, ledger)
    found = dict(plain_bounds(call, ledger))
    if _is(call):
        stores = tuple(dict.fromkeys((*ledger.stores, "weights", "consumed")))
        d = BoundDomain(replace(ledger, stores=stores))
        found |= {n: d.lower(t)[1] for n, t in _w(d, call).items()}
    return found


def uncovered(subject, call):
    text = _s.uncovered(subject, call)
    if text is None:
        return None
    return Skip("known_divergence" if text.startswith("known divergence ") else "not_claimed", "", text)


from attnspec.pyspec import Judgement


def judge_exact(tensor: str, observed: np.ndarray, exact: np.ndarray, bound: np.ndarray) -> Judgement:
    with np.errstate(all="ignore"):
        distance = np.abs(observed - exact)
        distance = np.where(observed == exact, 0.0, np.where(np.isfinite(distance), distance, np.inf))
        free = np.isinf(bound)
        ratio = np.where(free | (distance == 0), 0.0, distance / np.where(bound == 0, np.nan, bound))
    ratio = np.where(np.isnan(ratio), np.inf, ratio)
    if ratio.size == 0:
        return Judgement(tensor, True, 0.0, None, 0.0, (0.0, 0.0), 0.0, 0, 0, 0, 0)
    i = tuple(int(n) for n in np.unravel_index(int(np.argmax(ratio)), ratio.shape))
    outside = ratio > 1.0
    return Judgement(
        tensor=tensor,
        inside=not outside.any(),
        worst=float(ratio[i]),
        index=i,
        observed=float(observed[i]),
        exact=(float(exact[i]), float(exact[i])),
        bound=float(bound[i]),
        outside_count=int(outside.sum()),
        undecided_count=0,
        escalated_count=0,
        size=int(ratio.size),
    )


def unclaimed(c, names):
    from attnspec.certify.properties import needs as _needs

    for n in names:
        if n in ("families",):
            continue
        r = {
            "returned_weights": lambda c: (
                None if getattr(c, "returns_weights", False) else "returned weights not claimed"
            ),
            "own_dropout": lambda c: None if getattr(c, "samples_dropout", False) else "dropout of its own not claimed",
            "bilinear_score": lambda c: (
                None if "bilinear" in getattr(c, "families", ()) else "the bilinear family not claimed"
            ),
            "additive_score": lambda c: (
                None if "additive" in getattr(c, "families", ()) else "the additive family not claimed"
            ),
            "cosine_score": lambda c: (
                None if "cosine" in getattr(c, "families", ()) else "the cosine family not claimed"
            ),
        }.get(n) or getattr(_needs, n)
        t = r(c)
        if t:
            return Skip("not_claimed", n, t)
    return None
