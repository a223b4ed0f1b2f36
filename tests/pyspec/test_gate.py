"""The call gate: every assertion of the contract refuses before anything runs, with field, value and mend."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

import numpy as np
import pytest

from attnspec.pyspec import AttentionCall, CallError, Dropout, Visibility, call_to_json, make_call
from attnspec.pyspec.calls.call import Backend
from attnspec.pyspec.calls.masks.compiler import compile_visibility
from attnspec.pyspec.handover.gate import GateError, call_from_manifest, refusals
from attnspec.pyspec.handover.manifest_of import arrays_of, manifest_of
from attnspec.pyspec.oracle.ledger import named_ledgers

DELETE = object()


def a_call(**fields: Any) -> AttentionCall:
    rng = np.random.default_rng(0)

    def integers(*shape: int) -> np.ndarray:
        return rng.integers(-2, 3, shape).astype(float)

    mask = np.ones((2, 1, 2, 5), bool)
    mask[0, 0, 0, 3:] = False
    call = make_call(
        integers(2, 4, 2, 4), integers(2, 2, 5, 4), integers(2, 2, 5, 3), visible=mask, bias=integers(2, 1, 1, 5),
        encoding="additive", grad_output=integers(2, 4, 2, 3), backend=Backend("numpy"),
    )  # fmt: skip
    return call.but(**fields)


def manifest() -> dict[str, Any]:
    return copy.deepcopy(manifest_of(a_call(), framework_revision="numpy 2"))


def changed(path: str, value: Any) -> dict[str, Any]:
    m = manifest()
    *folders, last = path.split(".")
    at = m["attention_call_v1"]
    for folder in folders:
        at = at[folder]
    if value is DELETE:
        del at[last]
    else:
        at[last] = value
    return m


def test_a_manifest_of_a_call_passes_and_gives_the_call_back() -> None:
    valid = np.array([[True, True], [True, False]])
    rng = np.random.default_rng(1)
    for call in (
        a_call(),
        a_call(bias=None, encoding="bool"),
        a_call(bias=None, encoding="none", visibility=Visibility(np.ones((1, 1, 1, 1), bool))),
        a_call(visibility=Visibility(np.ones((2, 1, 2, 5), bool), valid, "sanitize_then_zero_invalid_query")),
        a_call(dropout=Dropout(0.5, 2.0 * (rng.random((2, 4, 2, 5)) < 0.5), returned_weights="after_dropout")),
    ):
        told = json.dumps(manifest_of(call, named_ledgers("float32")["float64-inside"]))
        back = call_from_manifest(told, arrays_of(call))
        assert call_to_json(back.but(backend=call.backend)) == call_to_json(call)


REFUSED = [
    ("axes", None, "axes", "seven lengths"),
    ("axes.Hkv", -1, "axes.Hkv", "at least 0"),
    ("axes.K", DELETE, "axes.K", "at least 0"),
    ("tensors.query.shape", [2, 4, 2, 5], "tensors.query.shape", r"expected \[2, 4, 2, 4\]"),
    ("tensors.key_physical.shape", [2, 4, 5, 4], "tensors.key_physical.shape", "never broadcast"),
    ("tensors.value_physical.shape", [1, 2, 5, 3], "tensors.value_physical.shape", "never broadcast"),
    ("tensors.query.stride", DELETE, "tensors.query.stride", "shape alone does not identify"),
    ("tensors.query.stride", [1], "tensors.query.stride", "one step for each of 4 axes"),
    ("tensors.query.stride", [32, 8, 1, 2], "tensors.query.contiguous", "say False; record what was observed"),
    ("tensors.query.contiguous", False, "tensors.query.contiguous", "record what was observed"),
    ("tensors.key_physical.device", "cuda:0", "tensors.key_physical.device", "expected 'cpu', as of query"),
    ("tensors.key_physical.dtype", "float16", "tensors.key_physical.dtype", "expected 'float32', as of query"),
    ("tensors.value_physical.dtype", "int8", "tensors.value_physical.dtype", "expected one of"),
    ("tensors.head_map", [0, 0, 1], "tensors.head_map", "each of 4 query heads"),
    ("tensors.head_map", [0, 0, 1, 2], "tensors.head_map[3]", r"in 0\.\.1"),
    ("visibility.semantic_polarity", "true_means_blocked", "visibility.semantic_polarity", "turned around"),
    ("visibility.semantic_polarity", DELETE, "visibility.semantic_polarity", "true_means_legal"),
    ("visibility.dtype", "float32", "visibility.dtype", "hide nothing"),
    ("visibility.shape", [2, 3, 2, 5], "visibility.shape", r"broadcast to \[2, 4, 2, 5\]"),
    ("visibility.shape", [2, 5], "visibility.shape", "four axes"),
    ("visibility.query_valid_shape", [2, 1, 5, 1], "visibility.query_valid_shape", r"broadcast to \[2, 1, 2, 1\]"),
    ("visibility.all_masked_row_policy", DELETE, "visibility.all_masked_row_policy", "leaves the call open"),
    ("visibility.all_masked_row_policy", "nan_to_num", "visibility.all_masked_row_policy", "expected one of"),
    ("bias.role", "mask", "bias.role", "belongs in visibility"),
    ("bias.shape", [2, 1, 1, 4], "bias.shape", "broadcast to"),
    ("score.compatibility_family", "cosine", "score.compatibility_family", "expected 'dot'"),
    ("score.scale_semantics", "temperature", "score.scale_semantics", "inverted"),
    ("score.scale_application_count", 2, "score.scale_application_count", "scaled already takes 1.0"),
    ("score.scale_width", 16, "score.scale_width", "the width of one head"),
    ("score.effective_logit_multiplier", 2.0, "score.effective_logit_multiplier", "looks like the divisor"),
    ("score.effective_logit_multiplier", 0.25, "score.effective_logit_multiplier", "applied twice"),
    ("score.effective_logit_multiplier", 1.0, "score.effective_logit_multiplier", "looks ignored"),
    ("score.effective_logit_multiplier", 0.3, "score.effective_logit_multiplier", "named in scale_override"),
    ("score.effective_logit_multiplier", math.inf, "score.effective_logit_multiplier", "finite number"),
    ("numerical.softmax_accumulation_dtype", DELETE, "numerical.softmax_accumulation_dtype", "backend_internal"),
    ("numerical.output_dtype", "double", "numerical.output_dtype", "expected one of"),
    ("numerical.qkv_storage_dtype", "float16", "numerical.qkv_storage_dtype", "the dtype of query"),
    ("dropout.p", 1.0, "dropout.p", "0 <= p < 1"),
    ("dropout.p", 0.1, "dropout.p", "0.0 in evaluation"),
    ("dropout.training", None, "dropout.training", "true or false"),
    ("dropout.location", "scores", "dropout.location", "probabilities_before_value_mixing"),
    ("dropout.returned_weights", "weights", "dropout.returned_weights", "post_dropout"),
    ("backend.requested_backend", None, "backend.requested_backend", "unobserved"),
    ("backend.selected_backend", "flash", "backend.selected_backend", "nothing was observed"),
    ("backend.is_causal", "yes", "backend.is_causal", "true or false"),
    ("backend.is_causal", True, "backend.is_causal", "composes twice"),
    ("backend.external_mask_kind", "triangle", "backend.external_mask_kind", "expected one of"),
    ("backend.external_mask_kind", "bool", "backend.external_mask_kind", "a bias travels in no other mask"),
    ("materialization.scores", "no", "materialization.scores", "backend_internal"),
    ("bias", DELETE, "bias", "null where there is none"),
    ("numerical", DELETE, "numerical", "a section of fields"),
    ("numerics", {}, "numerics", "no such section"),
]


@pytest.mark.parametrize(("path", "value", "field", "mend"), REFUSED)
def test_what_the_contract_rejects_is_refused_with_field_value_and_mend(
    path: str, value: Any, field: str, mend: str
) -> None:
    told = changed(path, value)
    with pytest.raises(GateError, match=mend) as refused:
        call_from_manifest(told, arrays_of(a_call()))
    found = [r for r in refused.value.refusals if r.field == field]
    assert found, refused.value.refusals
    if path == field:
        assert found[0].value == (None if value is DELETE else value)
    assert isinstance(refused.value, CallError)


def test_training_dropout_needs_a_replay_and_its_multiplier() -> None:
    told = changed("dropout.training", True)
    told["attention_call_v1"]["dropout"]["p"] = 0.5
    assert [r.field for r in refusals(told)] == ["dropout.rng_provenance"]
    told["attention_call_v1"]["dropout"]["rng_provenance"] = "philox, cuda:0, offset 12"
    with pytest.raises(GateError, match=r"arrays.dropout_multiplier = None"):
        call_from_manifest(told, arrays_of(a_call()))


def test_a_backend_is_observed_or_unobserved() -> None:
    told = changed("backend.selected_backend", "flash")
    assert refusals(told, observed_backends=("math",))[0].mend.startswith("math was observed")
    assert not refusals(told, observed_backends=("flash",))
    assert not refusals(changed("backend.selected_backend", "unobserved"))


def test_a_scale_of_the_models_own_is_named() -> None:
    told = changed("score.effective_logit_multiplier", 0.3)
    told["attention_call_v1"]["score"]["scale_override"] = "checkpoint"
    assert call_from_manifest(told, arrays_of(a_call())).scale_value == 0.3


def test_a_flag_beside_a_relation_that_is_causal_already() -> None:
    call = a_call(bias=None, encoding="bool", visibility=Visibility(np.tril(np.ones((2, 5), bool))[None, None]))
    call = call.but(encoding="causal_flag")
    told = manifest_of(call)
    assert call_from_manifest(told, arrays_of(call)).encoding == "causal_flag"
    for asked in ({"causal": True, "alignment": "upper_left"}, {"prefix_length": 2, "alignment": "upper_left"}):
        record = compile_visibility(2, 4, 2, 5, **asked).handoff
        told["attention_call_v1"]["visibility"]["handoff"] = record.as_dict()
        with pytest.raises(GateError, match="handoff already applied"):
            call_from_manifest(told, arrays_of(call))


def test_a_record_goes_with_its_own_mask() -> None:
    compiled = compile_visibility(2, 4, 2, 5, causal=True, cache_offset=3)
    call = a_call(visibility=compiled.visibility())
    told = manifest_of(call)
    told["attention_call_v1"]["visibility"]["handoff"] = compiled.handoff.as_dict()
    assert (call_from_manifest(told, arrays_of(call)).visible == compiled.relation).all()
    moved = compile_visibility(2, 4, 2, 5, causal=True, cache_offset=2)
    with pytest.raises(GateError, match="not the relation that this record was written for"):
        call_from_manifest(told, {**arrays_of(call), "visible": moved.mask})
    told["attention_call_v1"]["visibility"]["handoff"]["shape"] = [2, 4, 5, 5]
    told["attention_call_v1"]["visibility"]["handoff"]["polarity"] = "true_means_blocked"
    assert [r.field for r in refusals(told)] == ["visibility.handoff.polarity", "visibility.handoff.shape"]


def test_a_flag_over_a_relation_aligned_otherwise_is_refused() -> None:
    call = a_call(bias=None, encoding="bool", visibility=Visibility(np.tril(np.ones((2, 5), bool), 3)[None, None]))
    told = manifest_of(call, is_causal=True, external_mask_kind="none")
    with pytest.raises(GateError, match="upper-left causal mask"):
        call_from_manifest(told, arrays_of(call))


ARRAYS: list[tuple[str, Any, str]] = [
    ("query", np.zeros((2, 4, 2, 5)), r"arrays.query.shape = \[2, 4, 2, 5\]"),
    ("visible", np.ones((2, 1, 2, 5)), "arrays.visible.dtype = 'float64'"),
    ("visible", None, "arrays.visible = None"),
    ("bias", np.full((2, 1, 1, 5), -np.inf), r"arrays.bias\[0, 0, 0, 0\] = -inf.*hidden by `visible`"),
    ("key", np.full((2, 2, 5, 4), np.nan), r"arrays.key\[0, 0, 0, 0\] = nan"),
    ("query_valid", np.ones((2, 1, 2, 1), bool), "the manifest speaks of no such array"),
    ("mask", np.ones((2, 1, 2, 5), bool), "arrays.mask = 'mask': expected one of"),
    ("value", np.full((2, 2, 5, 3), 0.1), "is not a value of float32"),
]


@pytest.mark.parametrize(("name", "array", "message"), ARRAYS)
def test_arrays_are_what_the_manifest_says(name: str, array: Any, message: str) -> None:
    arrays = dict(arrays_of(a_call()))
    if array is None:
        del arrays[name]
    else:
        arrays[name] = array
    with pytest.raises(GateError, match=message):
        call_from_manifest(manifest(), arrays)


def test_reject_looks_at_the_rows() -> None:
    call = a_call()
    arrays = dict(arrays_of(call), visible=np.zeros((2, 1, 2, 5), bool))
    with pytest.raises(GateError, match="sees no key and empty_rows is 'reject'"):
        call_from_manifest(changed("visibility.all_masked_row_policy", "reject"), arrays)


def test_all_reasons_are_given_at_once() -> None:
    told = changed("dropout.p", 2.0)
    told["attention_call_v1"]["bias"]["role"] = "mask"
    with pytest.raises(GateError, match=r"\(and 1 more\)") as refused:
        call_from_manifest(told, {})
    assert [r.field for r in refused.value.refusals] == ["bias.role", "dropout.p"]


def test_text_that_is_no_manifest() -> None:
    assert "not JSON" in refusals("{")[0].mend
    assert refusals("[1]")[0].field == "attention_call_v1"
