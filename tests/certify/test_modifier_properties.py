"""Each planted bug of softcap and sink is refuted by the property that names it; right subjects hold everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnspec.certify.campaign.parts import features_of
from attnspec.certify.claims import Skip
from attnspec.certify.conventions.program import file_of
from attnspec.certify.properties.modifier_models import Way, modelled
from attnspec.certify.subject import Subject, uncovered
from attnspec.certify.subjects import load_subject
from attnspec.certify.subjects.functional import FunctionSubject
from attnspec.certify.trials import Held, check, registered
from attnspec.certify.trials.run import natural_size
from attnspec.pyspec import AttentionCall, Oracle
from attnspec.pyspec.calls.features import MODIFIERS
from attnspec.strategies import PROFILES, Features, call_at, reduce_call, small
from tests.certify.command import refuted
from tests.certify.drawn import cases
from tests.certify.planted_modifiers import PLANTED, Modified, PlantedModifier, right

ROOT = Path(__file__).parents[2]
CASES, HELD = 60, 12
NAMES = tuple(dict.fromkeys(bug.refuted_by for bug in PLANTED))
KEPT = tuple(p.id for p in registered().values() if p.keep and p.id not in NAMES)


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: f"{bug.name}-{bug.refuted_by}")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_each_planted_bug_is_refuted_by_the_property_that_names_it(bug: PlantedModifier, dtype: str) -> None:
    said = []
    for outcome in cases(Modified(bug.name), registered()[bug.refuted_by], dtype, CASES):
        if outcome.refuted:
            said.append(outcome.text or "")
            if bug.says in said[-1]:
                return
    assert said, f"{bug.name} survived {bug.refuted_by}"
    pytest.fail(f"{bug.name} was refuted but not named: {said[:3]}")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("subject", [right, load_subject("numpy-reference")], ids=lambda s: s.name)
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_right_subjects_hold(name: str, subject: Subject, dtype: str) -> None:
    outcomes = list(cases(subject, registered()[name], dtype, 2 * HELD))
    assert outcomes
    assert not [o.text or o.worst for o in outcomes if o.refuted]
    assert any(not o.vacuous for o in outcomes)


@pytest.mark.parametrize("name", KEPT)
def test_properties_that_keep_modifiers_hold_with_them(name: str) -> None:
    prop, seen = registered()[name], 0
    subject = right if prop.needs(right.capabilities) is None else load_subject("numpy-reference")
    held = Held(subject, subject.ledger)
    for index in range(300):
        call = call_at(9, index, small(PROFILES["smoke"]), features_of(subject.capabilities, "float32"))
        if all(getattr(call, n) is None for n in prop.keep):
            continue
        prepared = prop.prepare(call)
        if prepared is None or (prop.id == "poison-isolated"):
            continue
        outcome = check(prop, prepared, held).outcome
        assert not outcome.refuted, (index, outcome.text or outcome.worst)
        seen += outcome.skip is None
        if seen >= HELD:
            break
    assert seen or name == "poison-isolated"


def test_properties_that_say_nothing_of_modifiers_are_asked_without_them() -> None:
    features = Features(softcap=True, sink=True, slopes=True)
    calls = [call_at(1, i, small(PROFILES["smoke"]), features) for i in range(60)]
    calls = [c for c in calls if any(getattr(c, n) is not None for n in MODIFIERS)]
    for prop in registered().values():
        others = [n for n in MODIFIERS if n not in prop.keep]
        for call in calls[:4]:
            prepared = prop.prepare(call)
            assert prepared is None or all(getattr(prepared, n) is None for n in others), prop.id


def test_calls_of_subjects_without_modifiers_are_the_same_as_ever() -> None:
    for index in range(30):
        plain = call_at(3, index, "smoke", Features())
        both = call_at(3, index, "smoke", Features(softcap=True, sink=True))
        assert plain.softcap is None
        assert plain.sink is None
        for name in ("query", "key", "value", "bias", "grad_output"):
            assert np.array_equal(getattr(plain, name), getattr(both, name))
        assert plain.origin.items() <= both.origin.items()


def test_modifiers_are_drawn_at_a_low_rate() -> None:
    calls = [call_at(0, i, "smoke", Features(softcap=True, sink=True)) for i in range(300)]
    assert 20 <= sum(c.softcap is not None for c in calls) <= 90
    assert 20 <= sum(c.sink is not None for c in calls) <= 90
    assert {c.softcap for c in calls} == {None, 1.0, 5.0, 20.0, 50.0}
    assert {c.origin.get("sink") for c in calls} == {None, "zeros", "small", "large"}


def test_the_reducer_drops_what_does_not_matter_and_keeps_what_does() -> None:
    call = next(
        c
        for i in range(900)
        if (c := call_at(2, i, small(PROFILES["smoke"]), Features(softcap=True, sink=True, dtypes=("float32",))))
        and c.softcap
        and c.sink is not None
        and c.axes.query_heads > 1
    )
    assert reduce_call(call, lambda c: True).softcap is None
    assert reduce_call(call, lambda c: True).sink is None
    kept = reduce_call(call, lambda c: c.sink is not None and c.softcap is not None)
    assert kept.softcap == 1.0
    assert kept.sink is not None
    assert kept.sink.tolist() == [0.0]


def test_subjects_without_the_claim_are_not_held_to_it() -> None:
    subject = load_subject("numpy-scores")
    claims = subject.capabilities
    if claims.softcap or claims.sink:
        pytest.skip("numpy-scores claims them now")
    call = call_at(0, 0, "smoke", features_of(claims, "float32"))
    capped = uncovered(subject, call.but(softcap=5.0))
    sunk = uncovered(subject, call.but(sink=np.zeros(call.axes.query_heads)))
    assert capped == Skip("not_claimed", "softcap", "a softcap not claimed by numpy-scores")
    assert sunk == Skip("not_claimed", "sink", "an attention sink not claimed by numpy-scores")
    for name in NAMES:
        lacking = registered()[name].needs(claims)
        assert lacking is not None
        assert lacking.kind == "not_claimed"


def test_the_models_that_name_mistakes_are_right_where_nothing_is_wrong() -> None:
    for index in range(40):
        call = call_at(4, index, small(PROFILES["smoke"]), Features(dtypes=("float64",), softcap=True, sink=True))
        exact = Oracle(call).fast()
        for name, tensor in modelled(call, Way()).items():
            value, error = exact[name]
            with np.errstate(all="ignore"):
                size = natural_size(call, name)
                fits = np.isclose(tensor, value, rtol=1e-9, atol=1e-9 * size) | (np.abs(tensor - value) <= error)
            assert not np.isfinite(size) or fits.all(), (index, name)


def function(query: Any, key: Any, value: Any, attn_mask: Any = None, scale: Any = None, enable_gqa: bool = False,
             softcap: float | None = None, sink: Any = None) -> Any:  # fmt: skip
    """Eager attention in float32 that takes both modifiers by name."""
    import torch

    heads = query.shape[1] // max(key.shape[1], 1)
    key, value = key.float().repeat_interleave(heads, 1), value.float().repeat_interleave(heads, 1)
    scale = query.shape[-1] ** -0.5 if scale is None and query.shape[-1] else (1.0 if scale is None else scale)
    s = scale * (query.float() @ key.mT)
    if softcap is not None:
        s = softcap * torch.tanh(s / softcap)
    seen = torch.ones_like(s, dtype=torch.bool)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        seen = attn_mask.expand(s.shape)
    elif attn_mask is not None:
        seen = (attn_mask != -torch.inf).expand(s.shape)
        s = s + attn_mask.masked_fill(attn_mask == -torch.inf, 0.0)
    columns, shown = [s], [seen]
    if sink is not None:
        columns.append(sink.float()[None, :, None, None].expand(*s.shape[:3], 1))
        shown.append(torch.ones_like(columns[-1], dtype=torch.bool))
    s, seen = torch.cat(columns, -1), torch.cat(shown, -1)
    empty = ~seen.any(-1, keepdim=True)
    s = s.masked_fill(~seen, -torch.inf).masked_fill(empty, 0.0)
    p = torch.softmax(s, -1).masked_fill(empty, 0.0)
    return (p[..., : key.shape[2]] @ value).to(query.dtype)


@pytest.mark.parametrize("name", NAMES)
def test_a_function_that_takes_them_by_name_is_given_them(name: str) -> None:
    pytest.importorskip("torch")
    subject = FunctionSubject(function, "tests.certify.test_modifier_properties:function")
    assert subject.capabilities.softcap
    assert subject.capabilities.sink
    outcomes = list(cases(subject, registered()[name], "float32", HELD))
    assert outcomes
    assert not [o.text or o.worst for o in outcomes if o.refuted]


def test_a_program_of_a_function_passes_them() -> None:
    pytest.importorskip("torch")
    subject = FunctionSubject(function, "tests.certify.test_modifier_properties:function")
    call = next(iter(drawn_with_both()))
    program, names = file_of({"run": subject.program(call)}), {}
    exec(compile(program, "program", "exec"), names)
    assert "softcap=" in program
    assert "sink.grad" in program
    returned, seen = names["run"](), subject.run(call).tensors
    assert np.array_equal(returned["output"].double().numpy(), seen["output"])
    assert np.array_equal(returned["grad_sink"].double().numpy(), seen["grad_sink"])


def drawn_with_both():
    for index in range(900):
        call = call_at(6, index, small(PROFILES["smoke"]), Features(dtypes=("float32",), softcap=True, sink=True))
        if call.softcap and call.sink is not None and call.encoding != "causal_flag" and 0 not in call.score_shape:
            a: AttentionCall = call
            if a.head_map == tuple(range(a.axes.key_heads)) and a.dropout is None:
                yield a


@pytest.mark.parametrize(
    ("subject", "prop", "words"),
    [
        ("softcap_after_mask", "softcap-before-mask", "softcap applied after the mask"),
        ("sink_counted_as_a_value", "sink-agreement", "sink counted as a value"),
    ],
)
def test_the_command_line_refutes_and_names_it(subject: str, prop: str, words: str, tmp_path: Path) -> None:
    printed = refuted(f"tests/certify/planted_modifiers.py:{subject}", prop, tmp_path)
    assert words in printed
