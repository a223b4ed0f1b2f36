"""The run and the printed program give the same tensors, bit for bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnspec.certify.campaign.parts import features_of
from attnspec.certify.conventions.program import Program, file_of, number
from attnspec.certify.observation import Observation
from attnspec.certify.subject import Subject
from attnspec.certify.subjects import load_subject
from attnspec.certify.subjects.isolate import IsolatedSubject
from attnspec.pyspec import AttentionCall, Layout, Visibility, make_call
from attnspec.pyspec.calls.call import LAYOUTS, MASK_LAYOUTS, OwnDropout
from attnspec.pyspec.calls.score import Bilinear
from attnspec.strategies import PROFILES, call_at, small

torch = pytest.importorskip("torch")

from tests.certify import sampling_functions  # noqa: E402
from tests.conventions.ran import as_printed, differences  # noqa: E402

KERNELS = Path(__file__).parent / "kernels.py"
# Subjects, and how many calls of each are drawn: 300 in all.
SUBJECTS = {
    "torch-sdpa:math": 60,
    "torch-sdpa:flash": 40,
    f"{KERNELS}:modified": 80,
    f"{KERNELS}:sdpa": 40,
    "torch-eager": 20,
    "torch-scores": 20,
    "numpy-reference": 20,
    "numpy-scores": 20,
}


def drawn(subject: Subject, dtype: str, index: int) -> AttentionCall:
    """A call that the subject claims; every third has no gradients."""
    features = features_of(subject.capabilities, dtype)
    call = call_at(11, index, small(PROFILES["pr"]), features)
    return call.but(grad_output=None) if index % 3 == 0 else call


def spoiled(call: AttentionCall, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Raw arrays in place of some tensors: not finite, of another shape, or of another type."""
    name = str(rng.choice(["query", "key", "value"]))
    values: np.ndarray = getattr(call, name)
    kind = rng.integers(3)
    if kind == 0:
        return {name: np.where(rng.random(values.shape) < 0.3, rng.choice([np.nan, np.inf, -np.inf]), values)}
    if kind == 1:
        return {name: np.concatenate([values, values[:, :, -1:]], axis=2)}
    with np.errstate(over="ignore"):
        return {name: values.astype(np.float16 if call.dtype == "float32" else np.float32)}


@pytest.mark.parametrize(("spec", "count"), SUBJECTS.items(), ids=lambda x: str(x).rpartition("/")[2])
def test_what_is_printed_is_what_ran(spec: str, count: int) -> None:
    subject = load_subject(spec)
    dtypes = subject.capabilities.dtypes
    seen: Counter[str] = Counter()
    for index in range(count):
        call = drawn(subject, dtypes[index % len(dtypes)], index)
        observed = subject.run(call)
        assert not differences(subject.program(call), observed), (spec, index)
        layouts = [getattr(call.layout, n) for n in ("query", "key", "value")]
        seen.update([call.dtype, call.encoding, f"mask {call.layout.mask}", *layouts])
        seen.update(n for n in ("softcap", "sink", "bias", "grad_output") if getattr(call, n) is not None)
        seen.update(["zero"] if call.axes.any_zero else [])
        seen.update(["failed"] if observed.error else [])
    # torch's own refusals of empty tensors are few.
    assert seen["failed"] <= count // 4
    if spec.endswith("modified"):
        wanted = {"softcap", "sink", "bias", "zero", "none", "bool", "additive", "causal_flag", *LAYOUTS, *dtypes}
        assert not wanted - set(seen)
        assert not {f"mask {n}" for n in MASK_LAYOUTS} - set(seen)


@pytest.mark.parametrize("spec", ["torch-sdpa:math", f"{KERNELS}:modified", "torch-eager", "numpy-reference"])
def test_raw_arrays_are_printed_as_they_ran(spec: str) -> None:
    subject, rng, ran, failed = load_subject(spec), np.random.default_rng(3), 0, 0
    # Numpy warns of what is not finite; a subject of numpy that cannot run other shapes raises by itself.
    dtypes = subject.capabilities.dtypes
    for index in range(40):
        call = drawn(subject, dtypes[index % len(dtypes)], index)
        raw = spoiled(call, rng)
        if spec == "numpy-reference" and any(a.shape != getattr(call, n).shape for n, a in raw.items()):
            continue
        observed = subject.run(call, raw)
        ran, failed = ran + 1, failed + (observed.error is not None)
        assert not differences(subject.program(call, raw), observed), (spec, index, list(raw))
    assert ran > failed


LETTERS = "abcdefghij"


def numbers_in_a_fresh_process(programs: dict[str, Program], folder: Path) -> dict[str, dict[str, list[str]]]:
    """Every entry of every tensor, as hexadecimal floats, from a python that knows nothing of this one."""
    script = folder / "counterexample.py"
    lines = [
        "import json",
        "def hexes(x):",
        f"    return [{number('entry', ())}.hex() for entry in x.flatten()]",
        *(f"returned_{n} = {{k: hexes(t) for k, t in {n}().items() if t is not None}}" for n in programs),
        f"print(json.dumps({{{', '.join(f'{n!r}: returned_{n}' for n in programs)}}}))",
    ]
    script.write_text(file_of(programs) + "\n\n" + "\n".join(lines) + "\n")
    environment = {n: x for n, x in os.environ.items() if n != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, script.name], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_ten_programs_in_a_fresh_process_in_another_folder(tmp_path: Path) -> None:
    programs: dict[str, Program] = {}
    observed: dict[str, Observation] = {}
    subjects = [load_subject("torch-sdpa:math"), load_subject(f"{os.path.relpath(KERNELS)}:modified")]
    index = 0
    while len(programs) < len(LETTERS):
        subject, index = subjects[len(programs) % 2], index + 1
        call = drawn(subject, ("float32", "bfloat16", "float16", "float64")[index % 4], index)
        seen = subject.run(call)
        if seen.error is None:
            name = LETTERS[len(programs)]
            programs[name], observed[name] = subject.program(call), seen
    found = numbers_in_a_fresh_process(programs, tmp_path)
    for name, seen in observed.items():
        assert set(found[name]) == set(seen.tensors)
        for tensor, entries in found[name].items():
            assert entries == [float(x).hex() for x in seen.tensors[tensor].ravel()], (name, tensor)


def integers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(np.float64)


def test_a_kernel_that_misreads_a_transposed_mask_does_so_in_print_too() -> None:
    visible = np.array([[True, False, False], [True, True, False]])[None, None]
    call = make_call(integers(1, 1, 2, 2), integers(1, 1, 3, 2, seed=1), integers(1, 1, 3, 2, seed=2), visible=visible)
    subject = load_subject(f"{KERNELS}:misreads_mask")
    right = subject.run(call)
    turned = call.but(layout=Layout(mask="transposed"))
    seen = subject.run(turned)
    assert not np.array_equal(seen.tensors["output"], right.tensors["output"])
    assert not differences(subject.program(turned), seen)


@pytest.mark.parametrize("layout", ["padded", "heads_last", "transposed"])
def test_a_kernel_that_reads_out_of_bounds_does_so_in_print_too(layout: str) -> None:
    query, key, value = integers(1, 2, 2, 2), integers(1, 2, 3, 2, seed=1), integers(1, 2, 3, 2, seed=2)
    call = make_call(query, key, value, encoding="none", layout=Layout(value=layout))
    subject = load_subject(f"{KERNELS}:reads_past_the_end")
    seen = subject.run(call)
    if layout == "padded":
        assert np.isnan(seen.tensors["output"]).any()
    assert not np.array_equal(seen.tensors["output"], subject.run(call.but(layout=Layout())).tensors["output"])
    assert not differences(subject.program(call), seen)


def test_a_function_may_have_the_name_of_a_variable() -> None:
    call = make_call(integers(1, 1, 2, 2), integers(1, 1, 3, 2), integers(1, 1, 3, 2), encoding="none")
    subject = load_subject(f"{KERNELS}:query")
    assert not differences(subject.program(call), subject.run(call))


def test_own_dropout_is_seeded_in_print_too() -> None:
    call = make_call(*(np.ones((1, 1, 8, 8)) for _ in range(3)), encoding="none", scale=0.5)
    subject = sampling_functions.subject(sampling_functions.functional)
    outputs = []
    for seed in (1, 2):
        sampled = call.but(own_dropout=OwnDropout(0.5, seed))
        before = torch.random.get_rng_state()
        seen = subject.run(sampled)
        assert torch.equal(before, torch.random.get_rng_state())
        assert not differences(subject.program(sampled), seen)
        outputs.append(seen.tensors["output"])
    assert not np.array_equal(*outputs)


@pytest.mark.parametrize("spec", ["torch-scores", "numpy-scores"])
def test_score_families_and_their_gradients(spec: str) -> None:
    call = make_call(
        integers(1, 2, 2, 2), integers(1, 2, 3, 2), integers(1, 2, 3, 2), encoding="none",
        grad_output=integers(1, 2, 2, 2, seed=4), score=Bilinear(integers(2, 2, 2, seed=5)),
    )  # fmt: skip
    subject = load_subject(spec)
    seen = subject.run(call)
    assert "grad_metric" in seen.tensors
    assert not differences(subject.program(call), seen)


def test_broadcast_masks_are_handed_over_as_small_as_they_are_stored() -> None:
    shapes: list[Any] = []

    def looks(query: Any, key: Any, value: Any, attn_mask: Any = None) -> Any:
        shapes.append((tuple(attn_mask.shape), attn_mask.dtype))
        return torch.softmax(query @ key.mT, -1) @ value

    from attnspec.certify.subjects.functional import FunctionSubject

    subject = FunctionSubject(looks, "tests:looks")
    mask = np.array([True, False, True]).reshape(1, 1, 1, 3)
    call = replace(
        make_call(integers(2, 1, 2, 2), integers(2, 1, 3, 2), integers(2, 1, 3, 2)), visibility=Visibility(mask)
    )
    bias = integers(1, 1, 2, 1)
    for asked in (
        call,
        call.but(encoding="additive"),
        call.but(encoding="additive", bias=bias),
        call.but(encoding="additive", bias=bias, grad_output=integers(2, 1, 2, 2)),
        call.but(visibility=Visibility(mask, query_valid=np.array([[True, False], [True, True]]))),
        call.but(layout=Layout(mask="expanded")),
    ):
        assert subject.run(asked).error is None
    small_mask, whole = (1, 1, 1, 3), (2, 1, 2, 3)
    assert shapes == [
        (small_mask, torch.bool),
        (small_mask, torch.float32),
        ((1, 1, 2, 3), torch.float32),
        ((1, 1, 2, 3), torch.float32),
        (whole, torch.bool),
        (whole, torch.bool),
    ]


def test_what_is_not_asked_for_is_left_out() -> None:
    call = make_call(integers(1, 1, 2, 2), integers(1, 1, 3, 2), integers(1, 1, 3, 2), encoding="none")
    forward = "\n".join(load_subject(f"{KERNELS}:modified").program(call).forward)
    assert "modified(query, key, value)" in forward
    grouped = make_call(integers(1, 4, 2, 2), integers(1, 2, 2, 2), integers(1, 2, 2, 2), scale=0.5)
    forward = "\n".join(load_subject("torch-sdpa:math").program(grouped).forward)
    assert "(query, key, value, attn_mask=attn_mask, enable_gqa=True, scale=scale)" in forward


def test_a_subject_in_a_child_writes_the_same_program() -> None:
    call = make_call(integers(1, 1, 2, 2), integers(1, 1, 3, 2), integers(1, 1, 3, 2), layout=Layout(key="padded"))
    raw = {"value": np.full((1, 1, 3, 2), np.nan)}
    spec = f"{KERNELS}:sdpa"
    child = IsolatedSubject(spec)
    try:
        program = child.program(call, raw)
        assert file_of({"run": program}) == file_of({"run": load_subject(spec).program(call, raw)})
        assert np.isnan(child.run(call, raw).tensors["output"]).all()
        assert not differences(program, child.run(call, raw))
    finally:
        child.close()


def test_missing_gradients_of_empty_calls_are_zero_in_print_too() -> None:
    call = make_call(
        np.zeros((1, 1, 0, 2)), integers(1, 1, 3, 2), integers(1, 1, 3, 2), encoding="none",
        grad_output=np.zeros((1, 1, 0, 2)),
    )  # fmt: skip
    subject = load_subject("torch-sdpa:math")
    assert set(as_printed(subject.program(call))) == {"output", "grad_query", "grad_key", "grad_value"}
    assert not differences(subject.program(call), subject.run(call))
