"""Calls to try: one sampler of shapes, head maps, masks, values and gradients, and a reducer of failing calls.

Structure is drawn, values are filled from a seed. Needs pyspec and hypothesis, and no torch.
"""

from attnspec.strategies.by_number import call_at, plan_at
from attnspec.strategies.chooser import Chooser
from attnspec.strategies.coverage import traits
from attnspec.strategies.features import Features, features_of
from attnspec.strategies.hypothesis_calls import (
    attention_calls,
    axes,
    call_plans,
    gradients,
    head_maps,
    values,
    visibilities,
)
from attnspec.strategies.plan import CallPlan, build, draw_plan
from attnspec.strategies.profiles import PROFILES, Profile, small
from attnspec.strategies.reduce import reduce_call

__all__ = [
    "PROFILES",
    "CallPlan",
    "Chooser",
    "Features",
    "Profile",
    "attention_calls",
    "axes",
    "build",
    "call_at",
    "call_plans",
    "draw_plan",
    "features_of",
    "gradients",
    "head_maps",
    "plan_at",
    "reduce_call",
    "small",
    "traits",
    "values",
    "visibilities",
]
