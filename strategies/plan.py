"""The plan of a call: its structure by name, drawn by one sampler; `build` fills it from its seed."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from attnspec.pyspec.calls.call import AttentionCall, Axes, Dropout, Layout, Visibility
from attnspec.pyspec.calls.formats import get_format
from attnspec.pyspec.dropout import multiplier
from attnspec.pyspec.scale import default_scale
from attnspec.strategies.biases import BIAS_OPTIONS, broadcasts, build_bias
from attnspec.strategies.chooser import Chooser, one_of, weighted
from attnspec.strategies.features import Features
from attnspec.strategies.gradients import GRADIENT_OPTIONS, build_gradient
from attnspec.strategies.head_maps import draw_heads
from attnspec.strategies.layouts import draw_layout
from attnspec.strategies.masks import MASK_AXES, MaskPlan, build_mask, draw_mask
from attnspec.strategies.modifiers import SINK_OPTIONS, SLOPE_OPTIONS, SOFTCAP_OPTIONS, build_sink, build_slopes
from attnspec.strategies.profiles import Profile, get_profile
from attnspec.strategies.shapes import draw_axes
from attnspec.strategies.values import VALUE_OPTIONS, build_values

SEEDS = range(2**32)
SCALES: tuple[float | None, ...] = (None, 1.0, 0.5, 0.125, 3.0, -0.25, 0.0, 64.0)
_SCALE_OPTIONS = weighted((None, 9), *((value, 1) for value in SCALES[1:]))
DROPOUTS = ("none", "all_kept", "p=0.2", "p=0.5", "p=0.9")
_PROBABILITIES = {"all_kept": 0.0, "p=0.2": 0.2, "p=0.5": 0.5, "p=0.9": 0.9}
_DROPOUT_OPTIONS = weighted(("none", 12), ("p=0.5", 1), ("p=0.2", 1), ("p=0.9", 1), ("all_kept", 1))
# Few masks can be said without a mask: those that can, mostly are.
_ENCODING_WEIGHTS = {"none": 10, "bool": 2, "additive": 1, "causal_flag": 10}
# One stream of random numbers a part, so that no part depends on how much another one draws.
_STREAMS = ("mask", "bias", "values", "gradient", "dropout", "sink", "slopes")


@dataclass(frozen=True)
class CallPlan:
    """The structure of a call. Equal plans build the same call, bit for bit.

    gradient is None for a call without grad_output. bias_broadcast: axes that the bias stores with length 1.
    lost_rows: the dropout loses every key of some rows.
    """

    axes: Axes
    dtype: str = "float32"
    head_map: tuple[int, ...] = (0,)
    head_map_kind: str = "grouped"
    mask: MaskPlan = field(default_factory=lambda: MaskPlan("full"))
    values: str = "zeros"
    bias: str = "none"
    bias_broadcast: tuple[str, ...] = MASK_AXES
    scale: float | None = None
    gradient: str | None = None
    dropout: str = "none"
    lost_rows: bool = False
    encoding: str = "bool"
    layout: Layout = field(default_factory=Layout)
    seed: int = 0
    softcap: float | None = None
    sink: str = "none"
    slopes: str = "none"

    def labels(self) -> dict[str, str]:
        """Names of everything that was drawn: the origin of the call, and what coverage is counted by."""
        a, m = self.axes, self.mask
        return {
            "dtype": self.dtype,
            "mask": m.family,
            "mask_variant": str(m.variant),
            "mask_broadcast": "+".join(m.broadcast) or "none",
            "emptied_rows": m.emptied if m.emptied == "none" else f"{m.emptied} {m.emptied_rows}",
            "values": self.values,
            "bias": self.bias,
            "bias_broadcast": "+".join(self.bias_broadcast) or "none",
            "scale": "default" if self.scale is None else str(self.scale),
            "gradient": self.gradient or "none",
            "dropout": self.dropout + (" lost_rows" if self.lost_rows else ""),
            "encoding": self.encoding,
            "layout": "/".join((self.layout.query, self.layout.key, self.layout.value)),
            "mask_layout": self.layout.mask,
            "head_map": self.head_map_kind,
            "batch": str(a.batch),
            "heads": f"{a.query_heads}/{a.key_heads}",
            "queries": str(a.queries),
            "keys": str(a.keys),
            "widths": f"{a.key_width}/{a.value_width}",
            "fill_seed": str(self.seed),
            # Only where there is one: labels of calls without either stay as they were.
            **({} if self.softcap is None else {"softcap": str(self.softcap)}),
            **({} if self.sink == "none" else {"sink": self.sink}),
            **({} if self.slopes == "none" else {"slopes": self.slopes}),
        }


def draw_plan(choose: Chooser, profile: str | Profile = "pr", features: Features | None = None) -> CallPlan:
    """Draw a plan that the profile and the features allow."""
    profile, features = get_profile(profile), features or Features()
    dtype = choose("dtype", features.dtypes)
    kind, key_heads, head_map = draw_heads(choose, profile, features)
    axes = draw_axes(choose, profile, features, len(head_map), key_heads)
    mask = draw_mask(choose, axes, features)
    values = choose("values", VALUE_OPTIONS)
    bias = choose("bias", BIAS_OPTIONS if features.any_bias else ("none",))
    bias_broadcast = choose("bias_broadcast", broadcasts(bias))
    scale = choose("scale", _SCALE_OPTIONS if features.any_scale else (None,))
    gradient = choose("gradient", GRADIENT_OPTIONS if features.gradients else (None,))
    dropout = choose("dropout", _DROPOUT_OPTIONS if features.dropout_multiplier else ("none",))
    lost_rows = choose("lost_rows", (False, True) if dropout not in ("none", "all_kept") else (False,))
    return CallPlan(
        axes=axes,
        dtype=dtype,
        head_map=head_map,
        head_map_kind=kind,
        mask=mask,
        values=values,
        bias=bias,
        bias_broadcast=bias_broadcast,
        scale=scale,
        gradient=gradient,
        dropout=dropout,
        lost_rows=lost_rows,
        encoding=choose("encoding", _encodings(mask, bias, features)),
        layout=draw_layout(choose, features),
        seed=choose("seed", SEEDS),
        # Last, so that a subject without them is shown the same calls as ever.
        softcap=choose("softcap", SOFTCAP_OPTIONS if features.softcap else (None,)),
        sink=choose("sink", SINK_OPTIONS if features.sink else ("none",)),
        slopes=choose("slopes", SLOPE_OPTIONS if features.slopes else ("none",)),
    )


def _encodings(mask: MaskPlan, bias: str, features: Features) -> tuple[str, ...]:
    """Encodings that can carry this mask and bias, in the order of the features."""
    fitting = {"additive"}
    if bias == "none":
        fitting.add("bool")
        if mask.emptied == "none" and mask.family == "full":
            fitting.add("none")
        if mask.emptied == "none" and mask.family == "causal_upper_left":
            fitting.add("causal_flag")
    return weighted(*((name, _ENCODING_WEIGHTS[name]) for name in features.encodings if name in fitting))


def build(plan: CallPlan, **origin: str) -> AttentionCall:
    """The call of a plan, a pure function; `origin` is added to the labels that the call's origin holds."""
    axes, dtype = plan.axes, plan.dtype
    get_format(dtype)
    streams = {name: n for n, name in enumerate(_STREAMS)}

    def rng(part: str) -> np.random.Generator:
        return np.random.default_rng((plan.seed, streams[part]))

    scale = default_scale(axes.key_width) if plan.scale is None else plan.scale
    visibility = build_mask(plan.mask, axes, rng("mask"))
    query, key, value = build_values(plan.values, axes, dtype, scale, rng("values"))
    bias = None
    if plan.bias != "none":
        bias = build_bias(plan.bias, plan.bias_broadcast, axes, visibility.mask, dtype, rng("bias"))
    grad = None
    if plan.gradient is not None:
        shape = (axes.batch, axes.query_heads, axes.queries, axes.value_width)
        grad = build_gradient(plan.gradient, shape, dtype, rng("gradient"))
    return AttentionCall(
        query=query,
        key=key,
        value=value,
        dtype=dtype,
        visibility=Visibility(visibility.mask, visibility.query_valid),
        head_map=plan.head_map,
        bias=bias,
        scale=plan.scale,
        dropout=_dropout(plan, rng("dropout")) if plan.dropout != "none" else None,
        grad_output=grad,
        encoding=plan.encoding,
        layout=plan.layout,
        origin={**plan.labels(), **origin},
        softcap=plan.softcap,
        sink=build_sink(plan.sink, axes.query_heads, dtype, rng("sink")),
        slopes=build_slopes(plan.slopes, axes.query_heads, dtype, rng("slopes")),
    )


def _dropout(plan: CallPlan, rng: np.random.Generator) -> Dropout:
    one_of("dropout", plan.dropout, DROPOUTS)
    a, probability = plan.axes, _PROBABILITIES[plan.dropout]
    keep = rng.random((a.batch, a.query_heads, a.queries, a.keys)) >= probability
    if plan.lost_rows:
        keep &= rng.random((a.batch, a.query_heads, a.queries, 1)) < 0.7
    return Dropout(probability, multiplier(keep, probability))
