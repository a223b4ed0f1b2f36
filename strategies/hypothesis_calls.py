"""Hypothesis strategies: calls, and their parts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from hypothesis import strategies as st

from attnspec.pyspec.calls.call import AttentionCall, Axes, Visibility
from attnspec.strategies.chooser import Chooser, one_of
from attnspec.strategies.features import Features
from attnspec.strategies.gradients import GRADIENT_OPTIONS, GRADIENT_PROFILES, build_gradient
from attnspec.strategies.head_maps import draw_heads
from attnspec.strategies.masks import build_mask, draw_mask
from attnspec.strategies.plan import SEEDS, CallPlan, build, draw_plan
from attnspec.strategies.profiles import Profile, get_profile
from attnspec.strategies.shapes import draw_axes
from attnspec.strategies.values import VALUE_OPTIONS, VALUE_PROFILES, build_values

T = TypeVar("T")


@lru_cache(maxsize=4096)
def _sampled(options: Any, kinds: Any) -> st.SearchStrategy[Any]:
    """kinds tells (0, 1) from (False, True), which are equal, and of which only one is an index."""
    return st.sampled_from(options)


def hypothesis_chooser(draw: st.DrawFn) -> Chooser:
    """A chooser that lets Hypothesis pick, and shrink towards the first option."""

    def choose(name: str, options: Sequence[T], /) -> T:
        if isinstance(options, range) and len(options) > 1:
            return draw(_sampled(options, range))
        # A single option would be no choice at all to Hypothesis, which takes fewer choices for simpler: a large
        # size that leaves one option for the next would then beat a small one. Doubled, it counts like any other.
        return draw(_sampled(tuple(options) * (2 if len(options) == 1 else 1), tuple(map(type, options))))

    return choose


def call_plans(profile: str | Profile = "pr", features: Features | None = None) -> st.SearchStrategy[CallPlan]:
    """Plans of calls. Raises ValueError at once for an unknown profile."""
    resolved = get_profile(profile)

    @st.composite
    def plans(draw: st.DrawFn) -> CallPlan:
        return draw_plan(hypothesis_chooser(draw), resolved, features)

    return plans()


def attention_calls(
    profile: str | Profile = "pr", features: Features | None = None
) -> st.SearchStrategy[AttentionCall]:
    """Whole calls: structure drawn by Hypothesis, values filled from a drawn seed."""
    return call_plans(profile, features).map(build)


def axes(profile: str | Profile = "pr", features: Features | None = None) -> st.SearchStrategy[Axes]:
    """Sizes of calls."""
    resolved, allowed = get_profile(profile), features or Features()

    @st.composite
    def sizes(draw: st.DrawFn) -> Axes:
        choose = hypothesis_chooser(draw)
        _, key_heads, head_map = draw_heads(choose, resolved, allowed)
        return draw_axes(choose, resolved, allowed, len(head_map), key_heads)

    return sizes()


def head_maps(profile: str | Profile = "pr", features: Features | None = None) -> st.SearchStrategy[tuple[int, ...]]:
    """Head maps."""
    resolved, allowed = get_profile(profile), features or Features()

    @st.composite
    def maps(draw: st.DrawFn) -> tuple[int, ...]:
        return draw_heads(hypothesis_chooser(draw), resolved, allowed)[2]

    return maps()


def visibilities(sizes: Axes, features: Features | None = None) -> st.SearchStrategy[Visibility]:
    """Masks of all families for calls of the given sizes."""
    allowed = features or Features()

    @st.composite
    def masks(draw: st.DrawFn) -> Visibility:
        choose = hypothesis_chooser(draw)
        plan = draw_mask(choose, sizes, allowed)
        return build_mask(plan, sizes, np.random.default_rng(choose("seed", SEEDS)))

    return masks()


def values(
    sizes: Axes, dtype: str = "float32", scale: float = 1.0, profiles: Sequence[str] = VALUE_OPTIONS
) -> st.SearchStrategy[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(query, key, value) of the given sizes, from the named value profiles."""
    for name in profiles:
        one_of("value profile", name, VALUE_PROFILES)

    @st.composite
    def triples(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        choose = hypothesis_chooser(draw)
        profile = choose("values", profiles)
        return build_values(profile, sizes, dtype, scale, np.random.default_rng(choose("seed", SEEDS)))

    return triples()


def gradients(
    sizes: Axes, dtype: str = "float32", profiles: Sequence[str] = GRADIENT_OPTIONS
) -> st.SearchStrategy[np.ndarray]:
    """grad_output of the given sizes, from the named gradient profiles."""
    for name in profiles:
        one_of("gradient profile", name, GRADIENT_PROFILES)

    @st.composite
    def cotangents(draw: st.DrawFn) -> np.ndarray:
        choose = hypothesis_chooser(draw)
        profile = choose("gradient", profiles)
        shape = (sizes.batch, sizes.query_heads, sizes.queries, sizes.value_width)
        return build_gradient(profile, shape, dtype, np.random.default_rng(choose("seed", SEEDS)))

    return cotangents()
