"""The call gate: a manifest of a call is refused before anything runs, with the field, the value and the mend.

A manifest is a JSON object `attention_call_v1` that fixes everything a formula leaves open: axes, tensors with
strides, visibility with its polarity, bias, score and scale, numerics, dropout, backend and materialisation.
Passing the gate proves nothing about a kernel; it makes sure that one call is meant. Nothing is guessed: what was
not observed says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from attnspec.pyspec.calls.call import AttentionCall, Backend, CallError, Dropout, Visibility
from attnspec.pyspec.calls.masks.compiler import mask_digest
from attnspec.pyspec.calls.masks.handoff import CAUSAL_FAMILY, POLARITY
from attnspec.pyspec.handover.manifest import PER_HEAD, ROOT, SECTIONS, WEIGHTS, Refusal, check_axes
from attnspec.pyspec.scale import default_scale

ARRAYS = (
    "query",
    "key",
    "value",
    "visible",
    "query_valid",
    "bias",
    "dropout_multiplier",
    "grad_output",
    "sink",
    "slopes",
)


class GateError(CallError):
    """A manifest was refused. `refusals` holds every reason; the message is the first."""

    def __init__(self, refusals: Sequence[Refusal]) -> None:
        more = f" (and {len(refusals) - 1} more)" if len(refusals) > 1 else ""
        super().__init__(f"{refusals[0]}{more}")
        self.refusals = tuple(refusals)


def call_from_manifest(
    manifest: Mapping[str, Any] | str | bytes,
    arrays: Mapping[str, np.ndarray],
    observed_backends: Sequence[str] = (),
) -> AttentionCall:
    """The call that a manifest and its arrays mean; GateError with every refusal, before anything runs.

    arrays: query [B,Hq,Q,Dk], key [B,Hkv,K,Dk], value [B,Hkv,K,Dv], and where the manifest speaks of them visible
    (boolean), query_valid, bias, dropout_multiplier, grad_output, sink and slopes [Hq]. observed_backends: kernels
    that were seen to run.
    """
    found = refusals(manifest, observed_backends)
    if found:
        raise GateError(found)
    root = _root(manifest)
    found = tuple(_arrays(root, arrays))
    if found:
        raise GateError(found)
    found = tuple(_handed_over(root["visibility"].get("handoff"), np.asarray(arrays["visible"])))
    if found:
        raise GateError(found)
    return _call(root, {n: np.asarray(a) for n, a in arrays.items()})


def refusals(manifest: Mapping[str, Any] | str | bytes, observed_backends: Sequence[str] = ()) -> tuple[Refusal, ...]:
    """Every reason to refuse this manifest, without looking at any array; none when it may pass."""
    try:
        root = _root(manifest)
    except ValueError as error:
        return (Refusal("manifest", None, f"not JSON: {error}"),)
    if not isinstance(root, Mapping):
        return (Refusal(ROOT, root, "expected an object with the sections of a call"),)
    axes = tuple(check_axes(root.get("axes")))
    if axes:
        return axes
    sizes: dict[str, int] = dict(root["axes"])
    out = [Refusal(name, root[name], "no such section") for name in root if name not in (*SECTIONS, "axes")]
    for section, check in SECTIONS.items():
        given = root.get(section)
        if section == "bias" and given is None and "bias" in root:
            continue
        if not isinstance(given, Mapping):
            none = ", or null where there is none" if section == "bias" else ""
            out.append(Refusal(section, given, f"expected a section of fields{none}"))
            continue
        out += [Refusal(f"{section}.{r.field}", r.value, r.mend) for r in check(given, sizes)]
    return tuple(out) or tuple(_across(root, observed_backends))


def _root(manifest: Mapping[str, Any] | str | bytes) -> Any:
    data = json.loads(manifest) if isinstance(manifest, str | bytes) else manifest
    return data.get(ROOT, data) if isinstance(data, Mapping) else data


def _across(root: Mapping[str, Any], observed: Sequence[str]) -> Iterator[Refusal]:
    """Contradictions between sections."""
    backend, visibility = root["backend"], root["visibility"]
    n, handoff = root["axes"], visibility.get("handoff")
    if isinstance(handoff, Mapping):
        whole = [n["B"], n["Hq"], n["Q"], n["K"]]
        for field, expected in (("polarity", POLARITY), ("shape", whole), ("axes", list(visibility["shape"]))):
            if handoff.get(field) != expected:
                yield Refusal(f"visibility.handoff.{field}", handoff.get(field), f"expected {expected!r}")
    selected = backend["selected_backend"]
    if selected != "unobserved" and selected not in observed:
        seen = ", ".join(observed) or "nothing"
        yield Refusal(
            "backend.selected_backend", selected, f"{seen} was observed: say 'unobserved'; a request is no observation"
        )
    if root["numerical"]["qkv_storage_dtype"] not in (root["tensors"]["query"]["dtype"], "backend_internal"):
        yield Refusal(
            "numerical.qkv_storage_dtype", root["numerical"]["qkv_storage_dtype"],
            f"expected {root['tensors']['query']['dtype']!r}, the dtype of query",
        )  # fmt: skip
    if root["bias"] is not None and backend["external_mask_kind"] != "additive":
        yield Refusal(
            "backend.external_mask_kind",
            backend["external_mask_kind"],
            "expected 'additive': a bias travels in no other mask",
        )
    if not backend["is_causal"]:
        return
    if backend["external_mask_kind"] != "none":
        yield Refusal(
            "backend.is_causal", True, "a flag beside a mask composes twice: compile one relation and pass it alone"
        )
    before = [name for name in _applied(visibility.get("handoff")) if name in CAUSAL_FAMILY]
    if before:
        yield Refusal(
            "backend.is_causal",
            True,
            f"visibility.handoff already applied {before[0]!r}: drop the flag or the predicate",
        )


def _applied(handoff: Any) -> list[str]:
    predicates = handoff.get("predicates", ()) if isinstance(handoff, Mapping) else ()
    return [p.get("predicate", "") if isinstance(p, Mapping) else str(p) for p in predicates]


def _arrays(root: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Iterator[Refusal]:
    """Arrays that are not what the manifest says they are."""
    n, tensors, visibility, bias = root["axes"], root["tensors"], root["visibility"], root["bias"]
    valid, score = visibility.get("query_valid_shape"), root["score"]
    wanted = {
        "query": tensors["query"]["shape"],
        "key": tensors["key_physical"]["shape"],
        "value": tensors["value_physical"]["shape"],
        "visible": visibility["shape"],
        "query_valid": valid,
        "bias": None if bias is None else bias["shape"],
        "dropout_multiplier": [n["B"], n["Hq"], n["Q"], n["K"]] if _drops(root) else None,
        "grad_output": [n["B"], n["Hq"], n["Q"], n["Dv"]] if "grad_output" in arrays else None,
        **{name: score[name]["shape"] if score.get(name) else None for name in PER_HEAD},
    }
    for name in arrays:
        if name not in ARRAYS:
            yield Refusal(f"arrays.{name}", name, f"expected one of {', '.join(ARRAYS)}")
    for name, shape in wanted.items():
        if shape is None:
            if name in arrays:
                yield Refusal(f"arrays.{name}", list(np.shape(arrays[name])), "the manifest speaks of no such array")
            continue
        if name not in arrays:
            yield Refusal(
                f"arrays.{name}", None, f"expected the array of shape {list(shape)} that the manifest describes"
            )
            continue
        a = np.asarray(arrays[name])
        if list(a.shape) != list(shape):
            yield Refusal(f"arrays.{name}.shape", list(a.shape), f"expected {list(shape)}, as in the manifest")
        elif name in ("visible", "query_valid") and a.dtype != np.bool_:
            yield Refusal(f"arrays.{name}.dtype", str(a.dtype), "expected bool, true where it is legal")
        elif name not in ("visible", "query_valid") and not np.isfinite(np.asarray(a, dtype=np.float64)).all():
            where = [int(i) for i in np.argwhere(~np.isfinite(np.asarray(a, dtype=np.float64)))[0]]
            mend = "expected a finite number"
            yield Refusal(
                f"arrays.{name}{where}",
                float(a[tuple(where)]),
                f"{mend}: an edge is hidden by `visible`" if name == "bias" else mend,
            )


def _handed_over(handoff: Any, visible: np.ndarray) -> Iterator[Refusal]:
    """A record of compilation speaks of one mask: this one, as it was compiled."""
    digest = handoff.get("digest") if isinstance(handoff, Mapping) else None
    if digest and digest != mask_digest(visible):
        yield Refusal(
            "visibility.handoff.digest",
            digest,
            "the visible array is not the relation that this record was written for: compile it again",
        )


def _drops(root: Mapping[str, Any]) -> bool:
    return bool(root["dropout"]["training"] and root["dropout"]["p"] > 0)


def _call(root: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> AttentionCall:
    n, backend, dropout, score = root["axes"], root["backend"], root["dropout"], root["score"]
    alpha = float(score["effective_logit_multiplier"])
    valid = arrays.get("query_valid")
    numbers = {k: np.array(a, dtype=np.float64) for k, a in arrays.items() if k not in ("visible", "query_valid")}
    drop = None
    if _drops(root):
        drop = Dropout(dropout["p"], numbers["dropout_multiplier"], True, WEIGHTS[dropout["returned_weights"]])
    kind = "causal_flag" if backend["is_causal"] else backend["external_mask_kind"]
    try:
        return AttentionCall(
            query=numbers["query"],
            key=numbers["key"],
            value=numbers["value"],
            dtype=root["tensors"]["query"]["dtype"],
            visibility=Visibility(
                np.array(arrays["visible"]),
                None if valid is None else np.broadcast_to(valid, (n["B"], 1, n["Q"], 1))[:, 0, :, 0].copy(),
                root["visibility"]["all_masked_row_policy"],
            ),
            head_map=tuple(root["tensors"]["head_map"]),
            bias=numbers.get("bias"),
            scale=None if alpha == default_scale(n["Dk"]) else alpha,
            dropout=drop,
            grad_output=numbers.get("grad_output"),
            encoding=kind,
            softcap=None if score.get("softcap") is None else float(score["softcap"]),
            sink=numbers.get("sink"),
            slopes=numbers.get("slopes"),
            backend=Backend(
                str(backend["requested_backend"]),
                str(backend["selected_backend"]),
                str(root["materialization"]["probabilities"]),
            ),
        )
    except CallError as error:
        raise GateError([Refusal("call", None, str(error))]) from error
