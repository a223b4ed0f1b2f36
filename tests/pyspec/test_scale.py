"""The scale: four placements that agree exactly, and a gate that names each way to get it wrong."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from attnspec.certify.properties.wrong_scales import wrong_multipliers
from attnspec.pyspec.scale import default_scale, on_key, on_query, on_scores, split
from attnspec.pyspec.study.scale_manifest import ScaleError, ScaleManifest, check_scale


def rational(seed: int, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.vectorize(lambda n: Fraction(int(n), 7), otypes=[object])(rng.integers(-20, 21, shape))


@pytest.mark.parametrize("root", [Fraction(1, 2), Fraction(-3, 5), Fraction(0)])
def test_the_four_placements_agree_in_exact_arithmetic(root: Fraction) -> None:
    q, k = rational(0, 4, 3), rational(1, 5, 3)
    scale = root * root
    direct = on_scores(scale, q, k)
    for other in (on_query(scale, q, k), on_key(scale, q, k), split(root, root, q, k)):
        assert (other == direct).all()
    assert (split(scale, scale, q, k) == on_scores(scale * scale, q, k)).all()


def test_placements_round_differently() -> None:
    q, k = (np.random.default_rng(s).standard_normal((8, 8)).astype(np.float32) for s in (0, 1))
    found = {f.__name__: f(np.float32(0.3), q, k) for f in (on_scores, on_query, on_key)}
    assert not np.array_equal(found["on_scores"], found["on_query"])


def test_the_gate_passes_what_is_right() -> None:
    assert check_scale(ScaleManifest(0.5, width=4), 4) == 0.5
    assert check_scale(ScaleManifest(0.3, kernel_scale=0.3), 4) == 0.3
    assert check_scale(ScaleManifest(0.3, query_prescaled=True, kernel_scale=1.0), 4) == 1.0


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        (ScaleManifest(0.5, applications=2), "applications = 2: the scale is applied exactly once"),
        (ScaleManifest(0.5, applications=0), "applications = 0"),
        (ScaleManifest(2.0, meaning="denominator"), "meaning = 'denominator': the scale multiplies the scores"),
        (ScaleManifest(0.25, width=16), "width = 16: the default scale is derived from the key width 4"),
        (ScaleManifest(0.25, width=4), "multiplier = 0.25: expected 0.5"),
        (ScaleManifest(float("nan")), "multiplier = nan"),
        (ScaleManifest(0.3), "kernel_scale = None applies 0.5: expected 0.3"),
        (ScaleManifest(0.3, query_prescaled=True), "already carries the multiplier"),
        (ScaleManifest(0.3, query_prescaled=True, kernel_scale=0.3), "already carries the multiplier"),
    ],
)
def test_the_gate_names_what_is_wrong(manifest: ScaleManifest, words: str) -> None:
    with pytest.raises(ScaleError, match=words):
        check_scale(manifest, 4)


def test_wrong_multipliers_are_told_apart_by_name() -> None:
    found = wrong_multipliers(0.375, key_width=4, heads=4)
    assert found == {
        "scale ignored": 1.0,
        "scale applied twice": 0.140625,
        "scale used as a denominator": 1 / 0.375,
        "scale derived from the width of the model": 0.25,
        "default scale instead of the one given": 0.5,
        "default scale on top of the one given": 0.1875,
        "half of a split scale": 0.375**0.5,
    }
    assert len(set(found.values())) == len(found)


def test_a_mistake_without_effect_is_no_mistake() -> None:
    assert "scale derived from the width of the model" not in wrong_multipliers(default_scale(4), 4, 1)
    assert not {"scale ignored", "scale applied twice", "scale used as a denominator"} & set(
        wrong_multipliers(1.0, 1, 1)
    )
    assert "scale used as a denominator" not in wrong_multipliers(0.0, 4, 2)
