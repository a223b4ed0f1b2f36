"""The rules of other projects in bench/peers: they accept the correct kernel and reject a gross bug."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

from bench.peers import RULES, Kernel, Rule, verdict  # noqa: E402
from bench.peers.model import NEEDS_MORE, beyond, needs_of  # noqa: E402
from tests.mutants.bug import FEATURES  # noqa: E402
from tests.mutants.catalogue import BUGS, BY_NAME  # noqa: E402

MORE = {"scale", "value_width", "hiding", "empty_rows", "zero_sizes", "tails"}
# Its defaults ask a 16-bit kernel for more than one rounding of the weights allows.
TOO_TIGHT = {("assert-close", "bfloat16"), ("assert-close", "float16")}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("rule", "dtype"), [(r, d) for r in RULES for d in r.dtypes], ids=lambda x: getattr(x, "id", x)
)
def test_rule_accepts_the_correct_kernel_and_rejects_a_gross_bug(rule: Rule, dtype: str) -> None:
    cases = rule.cases(dtype, 0)
    assert cases
    found = verdict(cases, Kernel())
    assert (found is not None) == ((rule.id, dtype) in TOO_TIGHT), found
    gross = "query_gradient_doubled" if rule.id == "gradcheck" else "every_second_key_dropped"
    assert verdict(cases, Kernel(frozenset({gross}))) is not None


def test_rules_state_source_statement_and_what_was_left_out() -> None:
    assert len({r.id for r in RULES}) == len(RULES)
    for rule in RULES:
        assert rule.source
        assert rule.statement.endswith(".")
        assert rule.scaled.endswith(".")
        assert rule.features <= MORE | set(FEATURES), rule.features - MORE - set(FEATURES)


def test_what_a_bug_needs_names_real_bugs_and_known_features() -> None:
    assert set(NEEDS_MORE) <= set(BY_NAME)
    assert set(NEEDS_MORE.values()) <= MORE
    assert all(needs_of(b) <= MORE | set(FEATURES) for b in BUGS)


def test_bugs_beyond_an_interface_are_said_to_be() -> None:
    bench = next(r for r in RULES if r.id == "kernelbench")
    assert beyond(bench, BY_NAME["mask_polarity_inverted"], "float32") == "no mask"
    assert beyond(bench, BY_NAME["every_second_key_dropped"], "float32") is None
    assert beyond(bench, BY_NAME["every_second_key_dropped"], "float64") == "not run in float64"
