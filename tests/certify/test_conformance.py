"""The conformance suite for pytest: the same draws in every run, and failing calls first in the next one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from attnspec.certify.conformance import ConformanceCase, Refuted
from attnspec.certify.observation import Observation
from attnspec.certify.subjects.numpy_reference import NumpyReference
from attnspec.certify.trials import registered
from attnspec.pyspec import AttentionCall
from attnspec.pyspec.calls.fingerprint import fingerprint


@dataclass(frozen=True)
class Wrong(NumpyReference):
    """The reference, wrong from `bad` keys on; it remembers the calls that it was given."""

    bad: int = 10**9
    calls: list[bytes] = field(default_factory=list)

    def run(self, call: AttentionCall, raw: Mapping[str, np.ndarray] | None = None) -> Observation:
        self.calls.append(fingerprint(call))
        seen = super().run(call, raw)
        if call.axes.keys < self.bad:
            return seen
        return replace(seen, tensors={n: t + 1.0 for n, t in seen.tensors.items()})


def case_of(subject: Wrong, examples: int = 40) -> ConformanceCase:
    return ConformanceCase(
        registered()["convex-hull"], subject, "numpy-reference", "cpu", "float32", "smoke", examples
    )  # fmt: skip


def test_two_runs_draw_the_same_calls() -> None:
    one, other = Wrong(), Wrong()
    case_of(one).run()
    case_of(other).run()
    assert len(one.calls) > 30
    assert one.calls == other.calls


def test_a_failing_call_comes_first_in_the_next_run(tmp_path: Path) -> None:
    first, again = Wrong(bad=17), Wrong(bad=17)
    with pytest.raises(Refuted):
        case_of(first, 300).run(tmp_path)
    with pytest.raises(Refuted) as told:
        case_of(again, 300).run(tmp_path)
    assert len(again.calls) < len(first.calls)
    assert "keys 17" in str(told.value)


def test_a_mended_subject_passes_and_the_kept_call_is_forgotten(tmp_path: Path) -> None:
    with pytest.raises(Refuted):
        case_of(Wrong(bad=17), 300).run(tmp_path)
    assert list(tmp_path.iterdir())
    case_of(Wrong()).run(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_file_that_holds_no_call_is_told_of_and_removed(tmp_path: Path) -> None:
    with pytest.raises(Refuted):
        case_of(Wrong(bad=17), 300).run(tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_text("{")
    with pytest.warns(UserWarning, match="not an attnspec call"):
        case_of(Wrong()).run(tmp_path)
    assert not file.exists()
