"""One small call, with any field replaced."""

from __future__ import annotations

from typing import Any

import numpy as np

from attnspec.pyspec import AttentionCall, make_call

MASK = np.ones((1, 2, 3, 4), dtype=bool)
Z = np.ones((1, 1, 1, 1))


def call(**fields: Any) -> AttentionCall:
    """Two query heads over one key head, three queries, four keys, widths two and five."""
    given = {"dtype": "float32", "grad_output": np.ones((1, 2, 3, 5)), **fields}
    query, key, value = (
        given.pop(name, np.ones(shape))
        for name, shape in (("query", (1, 2, 3, 2)), ("key", (1, 1, 4, 2)), ("value", (1, 1, 4, 5)))
    )
    return make_call(query, key, value, **given)
