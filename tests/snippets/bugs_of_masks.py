"""Bugs in what a function with torch's signature sees: masks, rows without a key, heads, memory."""

from __future__ import annotations

from tests.snippets.bugs_of_functions import MASKED, SOFTMAX, ZEROED
from tests.snippets.planted import FUNCTION, UNDEFINED, Planted, wrong


def _is(name: str, right: str, instead: str, *refuted_by: str, dtype: str = "float32") -> Planted:
    return wrong(FUNCTION, name, right, instead, *refuted_by, dtype=dtype)


def _read(name: str, mask: str, *refuted_by: str, dtype: str = "float32") -> Planted:
    """A boolean mask read as that."""
    right = "visible = visible & attn_mask"
    return _is(name, right, f"visible = visible & ({mask})", *refuted_by, dtype=dtype)


MASKS = (
    _read("polarity flipped", "~attn_mask", "mask-polarity"),
    _read("first key of every run hidden", "attn_mask & attn_mask.roll(1, -1)", "window-law", dtype="float16"),
    _read(
        "one key before every run seen",
        "attn_mask | attn_mask.roll(-1, -1)",
        "segments-isolated",
        "packed-equals-separate",
        "policy-sentinel-key",
    ),
    _read(
        "key padding on queries",
        "attn_mask & attn_mask.mT if attn_mask.shape[2] == 1 and queries == keys else attn_mask",
        "key-padding-keys-only",
        dtype="bfloat16",
    ),
    _read("what the row before sees", "attn_mask | attn_mask.roll(1, -2)", "branches-alone", "policy-sanitize"),
    _read("causal over a prefix", "attn_mask.tril()", "prefix-law"),
    _read("rectangles from the upper left", "attn_mask if queries == keys else visible.tril()", "cached-decoding"),
    _read("first row's mask for all", "attn_mask[:, :, :1]", "policy-reject", "row-separation", dtype="float64"),
    _read("a row alone reads all keys", "attn_mask if queries > 1 else visible", "row-separation"),
    _is("hidden scores at -1e4", MASKED, MASKED.replace("-torch.inf", "-1e4"), "hidden-is-absent"),
    _is("hidden scores at -10", MASKED, MASKED.replace("-torch.inf", "-10.0"), "masked-keys-inert", dtype="bfloat16"),
    _is("causal lower right", "visible.tril()", "visible.tril(keys - queries)", "causal-alignment"),
    _is(
        "far rows see ahead",
        "visible.tril()",
        "visible.tril() | (torch.arange(queries) > 127)[:, None]",
        "causal-far-rows",
    ),
    _is("causal without the diagonal", "visible.tril()", "visible.tril(-1)", "encodings-agree"),
)

EMPTY_ROWS = (
    _is("empty rows give the mean", ZEROED, "\n    lse", "empty-rows", "policy-backend-contract"),
    _is("empty rows give NaN", f"{SOFTMAX}.masked_fill(dead, 0.0)", "torch.softmax(scores, dim=-1)",
        "causal-lower-right"),
    wrong(UNDEFINED, "zero where NaN was said", "[..., None], torch.nan)", "[..., None], 0.0)",
          "policy-backend-contract"),
)  # fmt: skip

HEADS_AND_MEMORY = (
    _is(
        "heads tiled for repeated",
        "x.repeat_interleave(q.shape[1] // k.shape[1], dim=1)",
        "x.repeat(1, q.shape[1] // k.shape[1], 1, 1)",
        "head-map",
    ),
    _is(
        "strides of the values ignored",
        "value.to(wide)",
        "value.as_strided(value.shape, torch.empty(value.shape).stride()).to(wide)",
        "layouts-agree",
    ),
    _is(
        "query doubled in place",
        "q, k, v = query.to(wide),",
        "query.data.mul_(2.0)\n    q, k, v = query.to(wide) / 2.0,",
        "inputs-unchanged",
    ),
)

BUGS = (*MASKS, *EMPTY_ROWS, *HEADS_AND_MEMORY)
