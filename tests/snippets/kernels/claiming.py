"""The function beside it with claims that no signature tells."""

import runpy
from pathlib import Path

import torch

from attnspec.certify.claims import Capabilities

attention = runpy.run_path(str(Path(__file__).with_name("function.py")))["attention"]
attention.attnspec_capabilities = Capabilities(
    dtypes=("float64", "float32", "bfloat16", "float16"),
    returns_lse=True,
    isolates_poison=True,
    deterministic=True,
    refuses_meaningless=True,
    softcap=True,
    sink=True,
    slopes=True,
)


def undefined(query, key, value, attn_mask=None):
    """Rows that see no key come out as NaN, and are known to."""
    output, lse = attention(query, key, value, attn_mask=attn_mask)
    return output.masked_fill(torch.isneginf(lse)[..., None], torch.nan)


undefined.attnspec_capabilities = Capabilities(
    encodings=("none", "bool", "additive"),
    grouped_heads=False,
    any_scale=False,
    empty_rows=False,
    empty_row_contract="nan",
)
