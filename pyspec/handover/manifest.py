"""The sections of a call manifest, each checked by itself: what is missing, what is wrong, and what would mend it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attnspec.pyspec.calls.call import EMPTY_ROW_POLICIES
from attnspec.pyspec.calls.formats import FORMATS

ROOT = "attention_call_v1"
POLARITIES = ("true_means_legal", "true_means_visible")
TENSORS = ("query", "key_physical", "value_physical")
NUMERICAL = (
    "qkv_storage_dtype", "score_accumulation_dtype", "softmax_accumulation_dtype", "probability_dtype",
    "value_accumulation_dtype", "output_dtype",
)  # fmt: skip
BACKEND = (
    "framework_revision", "model_revision", "entrypoint", "requested_backend", "selected_backend", "device_arch",
    "autocast", "deterministic", "arithmetic_mode", "is_causal", "external_mask_kind", "compile_state",
)  # fmt: skip
# Names of returned weights in a manifest, and in a call.
WEIGHTS = {"none": "none", "pre_dropout": "before_dropout", "post_dropout": "after_dropout"}
DROPOUT_LOCATION = "probabilities_before_value_mixing"
MASK_KINDS = ("none", "bool", "additive")

# Numbers that each query head has, by name: what they are to the scores, and what they are not.
PER_HEAD = {
    "sink": ("logit_without_value", "a sink that has a value is a key like others"),
    "slopes": ("penalty_per_distance", "distances are |i + K - Q - j|; any other penalty is a bias"),
}


@dataclass(frozen=True)
class Refusal:
    """Why a manifest is refused: the field by its path, the value found (None where it is missing), and the mend."""

    field: str
    value: Any
    mend: str

    def __str__(self) -> str:
        return f"{self.field} = {self.value!r}: {self.mend}"


def check_axes(axes: Any) -> Iterator[Refusal]:
    names = ("B", "Hq", "Hkv", "Q", "K", "Dk", "Dv")
    if not isinstance(axes, Mapping):
        yield Refusal("axes", axes, f"expected the seven lengths {', '.join(names)}")
        return
    for name in names:
        n = axes.get(name)
        if not isinstance(n, int) or isinstance(n, bool) or n < 0:
            yield Refusal(f"axes.{name}", n, "expected a length of at least 0")


def _missing(given: Mapping[str, Any], fields: Sequence[str], mend: str) -> Iterator[Refusal]:
    for name in fields:
        if given.get(name) is None:
            yield Refusal(name, None, mend)


def _tensors(given: Mapping[str, Any], n: Mapping[str, int]) -> Iterator[Refusal]:
    shapes = {
        "query": [n["B"], n["Hq"], n["Q"], n["Dk"]],
        "key_physical": [n["B"], n["Hkv"], n["K"], n["Dk"]],
        "value_physical": [n["B"], n["Hkv"], n["K"], n["Dv"]],
    }
    records: dict[str, Mapping[str, Any]] = {}
    for name, wanted in shapes.items():
        record = given.get(name)
        if not isinstance(record, Mapping):
            yield Refusal(name, record, "expected shape, stride, dtype, device and contiguous")
            continue
        records[name] = record
        yield from _missing_of(name, record, ("shape", "stride", "dtype", "device", "contiguous"))
        if record.get("shape") is not None and list(record["shape"]) != wanted:
            yield Refusal(
                f"{name}.shape", list(record["shape"]), f"expected {wanted}: query, key and value never broadcast"
            )
        elif record.get("stride") is not None and record.get("contiguous") is not None:
            yield from _contiguity(name, record)
        if record.get("dtype") is not None and record["dtype"] not in FORMATS:
            yield Refusal(f"{name}.dtype", record["dtype"], f"expected one of {', '.join(FORMATS)}")
    for field in ("device", "dtype"):
        values = {name: r[field] for name, r in records.items() if r.get(field) is not None}
        first = next(iter(values.items()), None)
        for name, value in values.items():
            if first is not None and value != first[1]:
                yield Refusal(
                    f"{name}.{field}", value, f"expected {first[1]!r}, as of {first[0]}: convert it before the call"
                )
    yield from _head_map(given.get("head_map"), n)


def _missing_of(name: str, record: Mapping[str, Any], fields: Sequence[str]) -> Iterator[Refusal]:
    for r in _missing(record, fields, "record what the tensor is; shape alone does not identify a call"):
        yield Refusal(f"{name}.{r.field}", r.value, r.mend)


def _contiguity(name: str, record: Mapping[str, Any]) -> Iterator[Refusal]:
    shape, stride = list(record["shape"]), list(record["stride"])
    if len(stride) != len(shape):
        yield Refusal(f"{name}.stride", stride, f"expected one step for each of {len(shape)} axes")
        return
    step, dense = 1, True
    for length, found in zip(reversed(shape), reversed(stride), strict=True):
        dense &= length <= 1 or found == step
        step *= length
    if 0 not in shape and bool(record["contiguous"]) != dense:
        yield Refusal(
            f"{name}.contiguous", record["contiguous"], f"strides {stride} say {dense}; record what was observed"
        )


def _head_map(head_map: Any, n: Mapping[str, int]) -> Iterator[Refusal]:
    if not isinstance(head_map, Sequence) or isinstance(head_map, str) or len(head_map) != n["Hq"]:
        yield Refusal("head_map", head_map, f"expected a key head for each of {n['Hq']} query heads")
        return
    for h, target in enumerate(head_map):
        if not isinstance(target, int) or isinstance(target, bool) or not 0 <= target < n["Hkv"]:
            yield Refusal(f"head_map[{h}]", target, f"expected a key head in 0..{n['Hkv'] - 1}")


def broadcasts(shape: Any, wanted: Sequence[int]) -> bool:
    """Has `shape` as many axes as `wanted`, each of that length or 1?"""
    return (
        isinstance(shape, Sequence)
        and len(shape) == len(wanted)
        and all(a in (1, b) for a, b in zip(shape, wanted, strict=True))
    )


def _visibility(given: Mapping[str, Any], n: Mapping[str, int]) -> Iterator[Refusal]:
    if given.get("semantic_polarity") not in POLARITIES:
        yield Refusal(
            "semantic_polarity", given.get("semantic_polarity"),
            "expected 'true_means_legal': a mask whose true blocks must be turned around by a named encoding first",
        )  # fmt: skip
    if given.get("dtype", "bool") != "bool":
        yield Refusal("dtype", given["dtype"], "expected 'bool': 1.0 and 0.0 added to scores hide nothing")
    whole = [n["B"], n["Hq"], n["Q"], n["K"]]
    if not broadcasts(given.get("shape"), whole):
        yield Refusal("shape", given.get("shape"), f"expected four axes that broadcast to {whole}")
    rows = [n["B"], 1, n["Q"], 1]
    if given.get("query_valid_shape") is not None and not broadcasts(given["query_valid_shape"], rows):
        yield Refusal("query_valid_shape", given["query_valid_shape"], f"expected four axes that broadcast to {rows}")
    if given.get("all_masked_row_policy") not in EMPTY_ROW_POLICIES:
        yield Refusal(
            "all_masked_row_policy", given.get("all_masked_row_policy"),
            f"expected one of {', '.join(EMPTY_ROW_POLICIES)}: leaving it open leaves the call open",
        )  # fmt: skip


def _bias(given: Mapping[str, Any], n: Mapping[str, int]) -> Iterator[Refusal]:
    if given.get("role") != "finite_preference_only":
        yield Refusal(
            "role", given.get("role"), "expected 'finite_preference_only': what hides an edge belongs in visibility"
        )
    whole = [n["B"], n["Hq"], n["Q"], n["K"]]
    if not broadcasts(given.get("shape"), whole):
        yield Refusal("shape", given.get("shape"), f"expected four axes that broadcast to {whole}")


def _score(given: Mapping[str, Any], n: Mapping[str, int]) -> Iterator[Refusal]:
    if given.get("compatibility_family") != "dot":
        yield Refusal(
            "compatibility_family",
            given.get("compatibility_family"),
            "expected 'dot': reduce another family exactly first",
        )
    if given.get("scale_semantics") != "multiplicative_inverse_temperature":
        yield Refusal(
            "scale_semantics", given.get("scale_semantics"),
            "expected 'multiplicative_inverse_temperature': a divisor must be inverted before the call",
        )  # fmt: skip
    if given.get("scale_application_count") != 1:
        yield Refusal(
            "scale_application_count",
            given.get("scale_application_count"),
            "expected 1: a query that is scaled already takes 1.0",
        )
    override = given.get("scale_override")
    if given.get("scale_width") != n["Dk"] and not override:
        yield Refusal(
            "scale_width",
            given.get("scale_width"),
            f"expected {n['Dk']}, the width of one head, or name who overrides it in scale_override",
        )
    alpha = given.get("effective_logit_multiplier")
    if not isinstance(alpha, int | float) or isinstance(alpha, bool) or not math.isfinite(alpha):
        yield Refusal("effective_logit_multiplier", alpha, "expected the finite number that multiplies query·key")
    elif not override and n["Dk"] and alpha not in (n["Dk"] ** -0.5, 1 / math.sqrt(n["Dk"])):
        yield Refusal("effective_logit_multiplier", alpha, _scale_mend(float(alpha), n["Dk"]))
    yield from _modifiers(given, n)


def _modifiers(given: Mapping[str, Any], n: Mapping[str, int]) -> Iterator[Refusal]:
    """Softcap, sink and slopes: left out, or null, where the score has none."""
    cap = given.get("softcap")
    if cap is not None and (
        not isinstance(cap, int | float) or isinstance(cap, bool) or not math.isfinite(cap) or cap <= 0
    ):
        yield Refusal("softcap", cap, "expected a finite number above 0, or null for no cap")
    for name, (role, mend) in PER_HEAD.items():
        one = given.get(name)
        if one is None:
            continue
        if not isinstance(one, Mapping):
            yield Refusal(name, one, f"expected role and shape, or null for no {name}")
            continue
        if one.get("role") != role:
            yield Refusal(f"{name}.role", one.get("role"), f"expected {role!r}: {mend}")
        if one.get("shape") is None or list(one["shape"]) != [n["Hq"]]:
            yield Refusal(f"{name}.shape", one.get("shape"), f"expected {[n['Hq']]}: one number for each query head")


def _scale_mend(alpha: float, width: int) -> str:
    root = math.sqrt(width)
    likely = {root: "looks like the divisor", 1 / width: "looks like the scale applied twice", 1.0: "looks ignored"}
    hint = next((f"; it {what}" for x, what in likely.items() if math.isclose(alpha, x)), "")
    return f"expected {width} ** -0.5 = {width**-0.5!r}{hint}; a scale of the model's own is named in scale_override"


def _numerical(given: Mapping[str, Any], n: Mapping[str, int]) -> Iterator[Refusal]:
    yield from _missing(given, NUMERICAL, "record the format, or 'backend_internal' where it is not documented")
    for name in NUMERICAL:
        if given.get(name) is not None and given[name] not in (*FORMATS, "backend_internal"):
            yield Refusal(name, given[name], f"expected one of {', '.join(FORMATS)}, backend_internal")


def _dropout(given: Mapping[str, Any], n: Mapping[str, int]) -> Iterator[Refusal]:
    p, training = given.get("p"), given.get("training")
    if not isinstance(training, bool):
        yield Refusal("training", training, "expected true or false")
    if not isinstance(p, int | float) or isinstance(p, bool) or not 0.0 <= p < 1.0:
        yield Refusal("p", p, "expected 0 <= p < 1")
    elif p > 0 and training is False:
        yield Refusal("p", p, "expected 0.0 in evaluation: a functional call drops whatever the module's mode is")
    elif p > 0 and not given.get("rng_provenance"):
        yield Refusal(
            "rng_provenance",
            given.get("rng_provenance"),
            "expected generator, device and counter: p alone is no replay",
        )
    if given.get("location") != DROPOUT_LOCATION:
        yield Refusal("location", given.get("location"), f"expected {DROPOUT_LOCATION!r}")
    if given.get("returned_weights") not in WEIGHTS:
        yield Refusal("returned_weights", given.get("returned_weights"), f"expected one of {', '.join(WEIGHTS)}")


def _backend(given: Mapping[str, Any], n: Mapping[str, int]) -> Iterator[Refusal]:
    yield from _missing(given, BACKEND, "record it, or 'unobserved' where it was not looked at")
    if given.get("is_causal") is not None and not isinstance(given["is_causal"], bool):
        yield Refusal("is_causal", given["is_causal"], "expected true or false")
    if given.get("external_mask_kind") is not None and given["external_mask_kind"] not in MASK_KINDS:
        yield Refusal("external_mask_kind", given["external_mask_kind"], f"expected one of {', '.join(MASK_KINDS)}")


def _materialization(given: Mapping[str, Any], n: Mapping[str, int]) -> Iterator[Refusal]:
    for name in ("scores", "probabilities"):
        if given.get(name) not in (True, False, "backend_internal"):
            yield Refusal(name, given.get(name), "expected true, false or 'backend_internal'")


SECTIONS: dict[str, Callable[[Mapping[str, Any], Mapping[str, int]], Iterator[Refusal]]] = {
    "tensors": _tensors,
    "visibility": _visibility,
    "bias": _bias,
    "score": _score,
    "numerical": _numerical,
    "dropout": _dropout,
    "backend": _backend,
    "materialization": _materialization,
}
