"""Claims stand once: the feature table, what properties need, and what a certificate lists as not claimed agree."""

from __future__ import annotations

from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from attnspec.certify.claims import CLAIMS, Capabilities, Skip, left_unclaimed, unclaimed
from attnspec.certify.subject import KnownDivergence, uncovered
from attnspec.pyspec import AttentionCall, Dropout, Layout, Visibility, make_call
from attnspec.pyspec.calls.call import LAYOUTS, MASK_ENCODINGS, OwnDropout
from attnspec.pyspec.calls.features import BY_NAME, FEATURES
from attnspec.pyspec.calls.formats import FORMATS
from attnspec.pyspec.calls.score import FAMILIES, Bilinear

SWITCHES = [field.name for field in fields(Capabilities) if isinstance(field.default, bool)]
EVERYTHING = replace(
    Capabilities(dtypes=tuple(FORMATS), families=FAMILIES),
    **dict.fromkeys(SWITCHES, True),  # type: ignore[arg-type]
)


def subject(capabilities: Capabilities, *known: KnownDivergence) -> Any:
    return SimpleNamespace(name="it", capabilities=capabilities, known_divergences=known)


def call(**changes: Any) -> AttentionCall:
    """Four query heads over two key heads, two queries, three keys, widths five and five."""
    ones = np.ones((1, 2, 3, 5))
    return make_call(np.ones((1, 4, 2, 5)), ones, ones, encoding="none").but(**changes)


# For each claim of calls, a call that needs nothing else.
Z = np.ones((1, 1, 1, 1))
NEEDS: dict[str, AttentionCall] = {
    "gradients": call(grad_output=np.ones((1, 4, 2, 5))),
    "bias": call(bias=Z, encoding="additive"),
    "value_width": call(value=np.ones((1, 2, 3, 6))),
    "grouped_heads": call(),
    "any_head_map": call(head_map=(0, 0, 0, 1)),
    "dropout": call(dropout=Dropout(0.0, Z)),
    "returned_weights": call(dropout=Dropout(0.0, Z, returned_weights="after_dropout")),
    "own_dropout": call(own_dropout=OwnDropout(0.5, 1)),
    "zero_sizes": call(query=np.ones((1, 4, 0, 5))),
    "empty_rows": call(visibility=Visibility(Z == 0), encoding="bool"),
    "scale": call(scale=1.0),
    "softcap": call(softcap=1.0),
    "sink": call(sink=np.zeros(4)),
    "slopes": call(slopes=np.ones(4)),
}


def test_the_table_names_claims_that_there_are() -> None:
    assert {f.claim for f in FEATURES if f.claim} <= {field.name for field in fields(Capabilities)}
    assert set(NEEDS) == {f.name for f in FEATURES if f.claim and f.names is None}


@pytest.mark.parametrize("name", NEEDS)
def test_a_call_outside_the_claim_is_skipped_by_the_name_of_the_feature(name: str) -> None:
    without = replace(EVERYTHING, **{BY_NAME[name].claim: False})  # type: ignore[arg-type]
    assert uncovered(subject(EVERYTHING), NEEDS[name]) is None
    assert uncovered(subject(without), NEEDS[name]) == Skip(
        "not_claimed", name, f"{BY_NAME[name].words} not claimed by it"
    )


def test_lists_of_names_are_claims_too() -> None:
    asked = {
        "dtype": (call(dtype="float16"), {"dtypes": ("float32",)}),
        "encoding": (call(encoding="bool"), {"encodings": ("none",)}),
        "layout": (call(layout=Layout(key="padded")), {"layouts": ("contiguous",)}),
        "score": (call(score=Bilinear(np.ones((1, 5, 5)))), {"families": ("cosine",)}),
    }
    assert set(asked) == {f.name for f in FEATURES if f.names is not None}
    for name, (one, narrow) in asked.items():
        assert uncovered(subject(EVERYTHING), one) is None
        skip = uncovered(subject(replace(EVERYTHING, **narrow)), one)  # type: ignore[arg-type]
        assert skip is not None
        assert (skip.kind, skip.feature) == ("not_claimed", name)


def test_known_divergences_are_told_by_their_name() -> None:
    known = KnownDivergence("off", "one is added", "F0", lambda call: call.scale is not None)
    assert uncovered(subject(EVERYTHING, known), call()) is None
    skip = uncovered(subject(EVERYTHING, known), call(scale=1.0))
    assert skip == Skip("known_divergence", "off", "known divergence off: one is added (F0)")


@pytest.mark.parametrize("switch", SWITCHES)
def test_every_switch_is_a_claim_and_is_listed_where_it_is_off(switch: str) -> None:
    assert unclaimed(EVERYTHING, CLAIMS) is None
    assert left_unclaimed(EVERYTHING) == []
    without = replace(EVERYTHING, **{switch: False})  # type: ignore[arg-type]
    lacking = [name for name in CLAIMS if unclaimed(without, (name,)) is not None]
    assert lacking
    assert len(left_unclaimed(without)) == 1


def test_lists_are_listed_by_what_they_lack() -> None:
    narrow = replace(EVERYTHING, encodings=MASK_ENCODINGS[:1], layouts=LAYOUTS[:4], families=())
    assert left_unclaimed(narrow) == [
        "mask encoding bool or additive or causal_flag",
        "score family bilinear or additive or cosine",
        "memory layout transposed",
    ]


def test_a_claim_rests_on_those_that_it_needs() -> None:
    only_flags = replace(EVERYTHING, encodings=("none", "causal_flag"))
    for name, lacking in (("empty_rows", "masks"), ("poison", "masks"), ("bias_gradient", "additive_masks")):
        skip = unclaimed(only_flags, (name,))
        assert skip is not None
        assert skip.feature == lacking
    assert unclaimed(only_flags, ("causal_flag", "gradients")) is None
    with pytest.raises(ValueError, match="claim 'colour': expected one of masks"):
        unclaimed(EVERYTHING, ("colour",))
