"""The same bits again, refusals, and what surgery says of masks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from attnspec.certify.claims import Capabilities
from attnspec.certify.properties.contract import faults
from attnspec.certify.subjects import load_subject
from attnspec.certify.subjects.functional import FunctionSubject
from attnspec.certify.trials import Outcome, registered
from attnspec.pyspec import CallError
from attnspec.pyspec.calls.cut import compact
from attnspec.pyspec.heads import grouped
from attnspec.strategies import PROFILES, call_at, small
from tests.certify import drawn

SDPA = torch.nn.functional.scaled_dot_product_attention
CLAIMS = Capabilities(deterministic=True, refuses_meaningless=True, zero_sizes=False, empty_rows=False, bias=False)


def outcomes(fn: Callable[..., Any], prop_id: str, cases: int = 40) -> list[Outcome]:
    fn.attnspec_capabilities = CLAIMS  # type: ignore[attr-defined]
    subject = FunctionSubject(fn, "planted")
    return list(drawn.outcomes(subject, registered()[prop_id], "float32", cases, seed=3))


def kernel(query: Any, key: Any, value: Any, attn_mask: Any = None, is_causal: bool = False, scale: float | None = None,
           enable_gqa: bool = False) -> Any:  # fmt: skip
    """torch's math kernel."""
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return SDPA(query, key, value, attn_mask=attn_mask, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa)


def test_a_right_kernel_gives_the_same_bits_and_refuses() -> None:
    for name in ("same-bits-again", "meaningless-refused"):
        found = outcomes(kernel, name)
        assert not any(o.refuted for o in found)
        assert sum(o.skip is None for o in found) > 20


def test_a_last_bit_that_changes_between_runs_is_seen() -> None:
    runs = iter(range(10**6))

    def drifting(query: Any, key: Any, value: Any, **options: Any) -> Any:
        out = kernel(query, key, value, **options)
        return torch.nextafter(out, out + 1.0) if next(runs) % 2 else out

    broken = [o.text for o in outcomes(drifting, "same-bits-again") if o.refuted]
    assert broken
    assert broken[0].startswith("the same call gave output[")


def test_a_zero_that_changes_its_sign_is_seen() -> None:
    runs = iter(range(10**6))

    def signed(query: Any, key: Any, value: Any, **options: Any) -> Any:
        out = kernel(query, key, value, **options)
        return out * 0.0 if next(runs) % 2 else out * -0.0

    assert any(o.refuted for o in outcomes(signed, "same-bits-again"))


@pytest.mark.parametrize(
    ("lenient", "words"),
    [
        (lambda q, k, v: (q, k.to(q.dtype), v.to(q.dtype)), "beside a query in float32"),
        (lambda q, k, v: (q, k, v[:, :, : k.shape[2]]), "keys and "),
        (lambda q, k, v: (q, k[..., : q.shape[-1]], v), "and keys of width"),
        (lambda q, k, v: (q, k[: len(q)], v[: len(q)]), "batches of keys and values for"),
    ],
    ids=["types", "lengths", "widths", "batches"],
)
def test_a_call_without_meaning_that_is_answered_refutes(lenient: Callable[..., Any], words: str) -> None:
    def accepting(query: Any, key: Any, value: Any, **options: Any) -> Any:
        return kernel(*lenient(query, key, value), **options)

    broken = [o.text for o in outcomes(accepting, "meaningless-refused", 80) if o.refuted]
    assert broken
    assert all(words in b and b.endswith("an answer came back, expected an exception") for b in broken if b)


def test_every_fault_of_shape_is_one_that_the_spec_has_no_call_for() -> None:
    kinds = set()
    for index in range(60):
        call = registered()["meaningless-refused"].prepare(call_at(9, index, small(PROFILES["smoke"])))
        for what, raw in () if call is None else faults(call):
            kinds.add(" ".join(w for w in what.split() if not w.isdigit()))
            if all(x.dtype == np.float64 for x in raw.values()):
                heads = raw.get("key", call.key).shape[1]
                with pytest.raises((CallError, ValueError)):
                    call.but(**raw, head_map=grouped(call.axes.query_heads, heads))
    assert len(kinds) >= 7


def test_torch_stores_an_array_of_another_type_in_its_own() -> None:
    seen: dict[str, Any] = {}

    def spy(query: Any, key: Any, value: Any) -> Any:
        seen.update(query=query.dtype, key=key.dtype, value=value.dtype)
        return query

    call = next(c for i in range(50) if not (c := call_at(1, i, "smoke")).axes.any_zero).but(dtype="float32")
    FunctionSubject(spy, "spy").run(call, {"key": call.key.astype(np.float16)})
    assert seen == {"query": torch.float32, "key": torch.float16, "value": torch.float32}


@pytest.mark.parametrize("shape", [(1, 1, 1, 4), (2, 1, 3, 1), (2, 3, 1, 1), (2, 3, 3, 4), (1, 1, 1, 1)])
def test_a_squeezed_mask_says_the_same_in_the_least_shape(shape: tuple[int, ...]) -> None:
    mask = np.random.default_rng(0).random(shape) < 0.5
    whole = np.broadcast_to(mask, (2, 3, 3, 4))
    least = compact(whole)
    assert np.array_equal(np.broadcast_to(least, whole.shape), whole)
    assert all(n <= m for n, m in zip(least.shape, shape, strict=True))


def test_built_in_claims_are_kept() -> None:
    claims = {n: load_subject(n).capabilities for n in ("torch-sdpa:math", "torch-sdpa:flash", "numpy-reference")}
    assert all(c.deterministic for c in claims.values())
    assert [n for n, c in claims.items() if c.refuses_meaningless] == ["torch-sdpa:math"]
