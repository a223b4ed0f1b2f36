"""The vectors notice: one operator changed in the mirror, and some number differs.

A comparison that no mistake can fail proves nothing, so each mistake here is planted and must be seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from attnspec.pyspec import alibi, attention, heads, online, sink, softmax, visibility
from attnspec.pyspec.domains.exact import ExactDomain
from tests.agreement import test_attention_vectors as whole
from tests.agreement import test_part_vectors as parts
from tests.agreement.vector_files import cases

Mistake = tuple[str, Any, str, Callable[..., Any], str, Callable[[dict[str, Any]], None]]


def _no_multiplier(dom: Any, p: Any, w: Any) -> Any:
    return w


def _scale_left_out(dom: Any, p: Any, x: Any, dx: Any) -> Any:
    both = dom.add("scaled", dom.mul_t("dot", dx.query, x.key), dom.mul_t("dot", x.query, dx.key))
    return both if dx.bias is None else dom.add("biased", both, dx.bias)


def _key_tangent_left_out(dom: Any, p: Any, x: Any, dx: Any) -> Any:
    scaled = dom.times("scaled", p.scale, dom.mul_t("dot", dx.query, x.key))
    return scaled if dx.bias is None else dom.add("biased", scaled, dx.bias)


def _bias_left_out(dom: Any, p: Any, x: Any) -> Any:
    return dom.times("scaled", p.scale, dom.mul_t("dot", x.query, x.key))


def _bias_scaled(dom: Any, p: Any, x: Any) -> Any:
    return dom.times("scaled", p.scale, dom.add("biased", dom.mul_t("dot", x.query, x.key), x.bias))


def _cap_after_bias(dom: Any, p: Any, x: Any, scaled: Any) -> Any:
    biased = scaled if x.bias is None else dom.add("biased", scaled, x.bias)
    return biased if p.softcap is None else dom.softcap(p.softcap, biased)


def _weights_grad_without_multiplier(dom: Any, p: Any, x: Any, grad_output: Any) -> Any:
    return dom.mul_t("consumed_grad", grad_output, x.value)


def _not_centred(domain: Any, weights: Any, x: Any) -> Any:
    return weights * x


def _hidden_keys_counted(domain: Any, visible: Any, scores: Any) -> Any:
    return domain.masked_exp(np.ones_like(visible), scores)


def _one_position_late(queries: int, keys: int, offset: int) -> Any:
    return np.arange(keys)[None, :] < np.arange(queries)[:, None] + offset


def _sink_with_a_value(rows: Any) -> Any:
    return np.concatenate([rows, np.ones((*rows.shape[:2], 1, rows.shape[3]))], axis=2)


def _distances_from_upper_left(queries: int, keys: int) -> Any:
    return np.abs(np.arange(queries)[:, None] - np.arange(keys)[None, :]).astype(float)


def _rewarded(dom: Any, slopes: Any, away: Any) -> Any:
    return dom.hadamard("alibi", slopes, dom.lift(away))


def _plain_sum(dom: Any, scores_grad: Any, away: Any, batch: int) -> Any:
    return -dom.sum(dom.sum(scores_grad, 3), 2)


def _last_head_of_group(dom: Any, stage: str, head_map: Any, key_heads: int, grad: Any, zero: Any) -> Any:
    last = {g: h for h, g in enumerate(head_map)}
    return dom.stack_heads([dom.take(grad, np.array([last[g]])) if g in last else zero for g in range(key_heads)])


def _no_rescaling(dom: Any, shift: Any, a: Any, b: Any) -> Any:
    return online.Acc(shift, a.mass + b.mass, a.out + b.out)


BACKWARD, FORWARD, JVP = whole.test_backward, whole.test_attention, whole.test_jvp
MISTAKES: list[Mistake] = [
    ("dropout left out", attention, "consumed", _no_multiplier, "attention", FORWARD),
    ("dropout left out of gV", attention, "consumed", _no_multiplier, "attention", BACKWARD),
    ("dropout left out of Gp", attention, "weights_grad", _weights_grad_without_multiplier, "attention", BACKWARD),
    ("scale left out of the tangent", attention, "scores_jvp", _scale_left_out, "attention", JVP),
    ("key left out of the tangent", attention, "scores_jvp", _key_tangent_left_out, "attention", JVP),
    ("bias left out", attention, "scores", _bias_left_out, "attention", FORWARD),
    ("bias scaled", attention, "scores", _bias_scaled, "attention", FORWARD),
    ("slope of the cap left out", ExactDomain, "softcap_grad", lambda dom, cap, a, g: g, "softcap", BACKWARD),
    ("cap after the bias", attention, "_cap_and_bias", _cap_after_bias, "softcap", FORWARD),
    ("no centring", softmax, "center", _not_centred, "attention", BACKWARD),
    ("hidden keys counted", softmax, "numerator", _hidden_keys_counted, "attention", FORWARD),
    ("a sink with a value", sink, "_one_more", _sink_with_a_value, "sink", whole.test_sink),
    ("distances from the upper left", alibi, "distances", _distances_from_upper_left, "alibi", whole.test_alibi),
    ("slopes that reward distance", alibi, "slope_bias", _rewarded, "alibi", whole.test_alibi),
    ("distances left out of the gradient", alibi, "slope_gradient", _plain_sum, "alibi", whole.test_alibi),
    ("causal one off", visibility, "causal", _one_position_late, "visibility", parts.test_visibility),
    ("one head of a group", heads, "group_sum", _last_head_of_group, "heads", whole.test_heads),
    ("no rescaling", online, "merge", _no_rescaling, "online", parts.test_online),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=[m[0] for m in MISTAKES])
def test_mistake_is_seen(mistake: Mistake, monkeypatch: pytest.MonkeyPatch) -> None:
    _, module, name, wrong, file, test = mistake
    for case in cases(file):
        test(case)
    monkeypatch.setattr(module, name, wrong)
    seen = 0
    for case in cases(file):
        try:
            test(case)
        except AssertionError:
            seen += 1
    assert seen > 0, "no vector of this file tells the mistake from the truth"
