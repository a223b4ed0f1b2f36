"""How often a seeded stream of calls hits each family, class and trap: the quality of the generator, as numbers.

The stream is fixed, so the tests are deterministic. Stated rates are about half of what was measured over
4,000 calls: they catch a generator that lost something, not a change of weights.
"""

from __future__ import annotations

from collections import Counter

import pytest

from attnspec.pyspec.calls.call import LAYOUTS, MASK_ENCODINGS, MASK_LAYOUTS, representable
from attnspec.pyspec.calls.formats import FORMATS
from attnspec.strategies import PROFILES, Features, call_at, plan_at, small, traits
from attnspec.strategies.biases import BIAS_KINDS
from attnspec.strategies.gradients import GRADIENT_PROFILES
from attnspec.strategies.masks import EMPTIED_ROWS, MASK_FAMILIES
from attnspec.strategies.plan import DROPOUTS, SCALES
from attnspec.strategies.profiles import HEADS, LENGTH_CLASSES, WIDTHS
from attnspec.strategies.shapes import ZEROED
from attnspec.strategies.values import VALUE_PROFILES

DRAWS = 2000

# Least share of calls, in percent.
TRAITS = {
    "queries ≠ keys": 80.0,
    "value width ≠ key width": 25.0,
    "key width mod 8 ≠ 0": 40.0,
    "query heads ≠ key heads": 25.0,
    "unused key head": 2.0,
    "scale given": 25.0,
    "bias": 20.0,
    "zero size": 2.0,
    "|logit| > 90": 12.0,
    "LSE < -88.7": 5.0,
    "tied logits": 12.0,
    "empty row": 20.0,
    "empty row beside a full one": 12.0,
    "first 16 keys hidden, a later one visible": 7.0,
    "first 32 keys hidden, a later one visible": 3.0,
    "first 64 keys hidden, a later one visible": 1.5,
    "bias on a hidden key": 14.0,
    "dropout": 12.0,
    "dropout loses every key of a row": 6.0,
    "keys mod 16 = 0": 12.0,
    "keys mod 16 = 1": 15.0,
    "keys mod 16 = 15": 10.0,
    "gradient": 100.0,
}
TRAITS |= {f"{what} {length}": 0.7 for what in ("queries", "keys") for length in LENGTH_CLASSES}
TRAITS |= {f"encoding {name}": 2.0 for name in MASK_ENCODINGS}
TRAITS |= {f"dtype {name}": 20.0 for name in FORMATS}
TRAITS |= {f"layout {name}": 8.0 for name in LAYOUTS}
TRAITS |= {f"mask layout {name}": 7.0 for name in MASK_LAYOUTS}
TRAITS |= {f"mask broadcast along {axis}": 3.0 for axis in ("batch", "head", "query", "key")}
TRAITS |= {f"mask varies along {axis}": 4.0 for axis in ("batch", "head", "query", "key")}
TRAITS |= {f"bias broadcast along {axis}": 4.0 for axis in ("batch", "head", "query", "key")}
TRAITS |= {f"bias varies along {axis}": 3.0 for axis in ("batch", "head", "query", "key")}

LABELS: dict[tuple[str, str], float] = {}
LABELS |= {("mask", name): 1.0 for name in MASK_FAMILIES}
LABELS |= {("values", name): 1.0 for name in VALUE_PROFILES}
LABELS |= {("gradient", name): 1.0 for name in GRADIENT_PROFILES}
LABELS |= {("bias", name): 1.5 for name in BIAS_KINDS}
LABELS |= {("scale", "default" if value is None else str(value)): 3.0 for value in SCALES}
LABELS |= {("dropout", name): 1.5 for name in DROPOUTS}
LABELS |= {("dropout", f"{name} lost_rows"): 1.0 for name in ("p=0.2", "p=0.5", "p=0.9")}
LABELS |= {("head_map", name): 5.0 for name in ("grouped", "arbitrary")}
LABELS |= {("batch", str(n)): 8.0 for n in (1, 2, 3)}


@pytest.fixture(scope="module")
def hits() -> Counter[object]:
    """Percent of the calls that carry each trait (a string) and each label (a pair)."""
    found: Counter[object] = Counter()
    for index in range(DRAWS):
        call = call_at(2026, index, "pr")
        assert representable(call), call.origin
        found.update(traits(call))
        found.update(call.origin.items())
        found.update(("query heads", h) for h in {call.axes.query_heads})
        found.update(("key width", w) for w in {call.axes.key_width})
        found["queries > 2 keys"] += call.axes.queries > 2 * call.axes.keys
        found["keys > 2 queries"] += call.axes.keys > 2 * call.axes.queries
        found["square"] += call.axes.queries == call.axes.keys > 1
        found["both long and causal"] += min(call.axes.queries, call.axes.keys) > 128 and call.encoding == "causal_flag"
        found["both long"] += min(call.axes.queries, call.axes.keys) >= 127
        found["layouts differ"] += len({call.layout.query, call.layout.key, call.layout.value}) > 1
        found.update(("zero", name) for name in ZEROED if getattr(call.axes, name) == 0)
        found.update(("emptied", name) for name in EMPTIED_ROWS if call.origin["emptied_rows"].startswith(name))
    return Counter({name: 100 * n / DRAWS for name, n in found.items()})


@pytest.mark.parametrize("trait", sorted(TRAITS))
def test_calls_have_the_trait_often_enough(trait: str, hits: Counter[object]) -> None:
    assert hits[trait] >= TRAITS[trait]


@pytest.mark.parametrize("label", sorted(LABELS), ids=" ".join)
def test_plans_draw_the_name_often_enough(label: tuple[str, str], hits: Counter[object]) -> None:
    assert hits[label] >= LABELS[label]


def test_heads_widths_zeros_and_emptied_rows_are_drawn_often_enough(hits: Counter[object]) -> None:
    assert min(hits["query heads", h] for h in set(HEADS)) >= 4
    assert min(hits["key width", w] for w in WIDTHS) >= 2
    assert min(hits["zero", name] for name in ZEROED) >= 0.3
    assert sum(hits["zero", name] for name in ZEROED) <= 10
    assert min(hits["emptied", name] for name in EMPTIED_ROWS) >= 5


def test_calls_are_long_on_either_side_and_mix_layouts(hits: Counter[object]) -> None:
    assert hits["keys > 2 queries"] >= 30
    assert hits["queries > 2 keys"] >= 15
    assert hits["both long"] >= 1.5
    assert hits["both long and causal"] >= 0.1
    assert hits["square"] >= 4
    assert hits["layouts differ"] >= 12


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_profiles_keep_their_limits_and_reach_every_length(name: str) -> None:
    profile = PROFILES[name]
    plans = [plan_at(7, index, profile, Features(zero_sizes=False)) for index in range(3000)]
    for plan in plans:
        a = plan.axes
        assert a.batch * a.query_heads * a.queries * a.keys <= profile.scores
        assert a.batch * a.query_heads * a.queries * a.key_width <= profile.elements
        assert a.batch * a.key_heads * a.keys * a.value_width <= profile.elements
    assert {plan.axes.keys for plan in plans} >= set(LENGTH_CLASSES)
    assert {plan.axes.queries for plan in plans} >= set(LENGTH_CLASSES)


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_small_profiles_are_small_and_keep_the_tile_edges(name: str) -> None:
    plans = [plan_at(7, index, small(name), Features(zero_sizes=False)) for index in range(2000)]
    for plan in plans:
        a = plan.axes
        assert a.batch * a.query_heads * a.queries * a.keys <= 2000
        assert max(a.queries, a.keys) <= 33
    edges = {n for n in LENGTH_CLASSES if n <= 33}
    assert {plan.axes.keys for plan in plans} >= edges
    assert {plan.axes.queries for plan in plans} >= edges
    assert {plan.mask.family for plan in plans} == set(MASK_FAMILIES)
