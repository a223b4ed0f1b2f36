"""Calls by number: a pure function of (seed, index), without Hypothesis, so that any shard can be recomputed."""

from __future__ import annotations

import numpy as np

from attnspec.pyspec.calls.call import AttentionCall
from attnspec.strategies.chooser import generator_chooser
from attnspec.strategies.features import Features
from attnspec.strategies.plan import CallPlan, build, draw_plan
from attnspec.strategies.profiles import Profile


def plan_at(seed: int, index: int, profile: str | Profile = "pr", features: Features | None = None) -> CallPlan:
    """Plan number `index` of the stream `seed`. Raises ValueError for a negative number."""
    if seed < 0 or index < 0:
        raise ValueError(f"seed = {seed!r}, index = {index!r}: expected numbers that are not negative")
    rng = np.random.default_rng(np.random.SeedSequence([seed, index]))
    return draw_plan(generator_chooser(rng), profile, features)


def call_at(seed: int, index: int, profile: str | Profile = "pr", features: Features | None = None) -> AttentionCall:
    """Call number `index` of the stream `seed`; its origin names the seed and the index."""
    return build(plan_at(seed, index, profile, features), seed=str(seed), index=str(index))
