"""The order in which claims are asked: those that refute most wrong kernels first, so that a broken one shows early."""

from __future__ import annotations

from collections.abc import Iterable

# Agreement leads, since its refutations need no explaining. The others in the order that bench/order.py prints, as far
# as their first cases told apart more than a bug or two; large logits are among them, since nothing else asks for them.
EARLY = (
    "forward-agreement",
    "lse-agreement",
    "gradient-agreement",
    "scale",
    "causal-lower-right",
    "singletons-copy",
    "policy-sanitize",
    "causal-far-rows",
    "window-law",
    "inputs-unchanged",
    "key-permutation",
    "bilinear-reduces-to-dot",
    "softcap-agreement",
    "mask-polarity",
    "row-separation",
    "causal-alignment",
    "softcap-off-is-identity-limit",
    "large-logits",
    "poison-isolated",
    "meaningless-refused",
    "empty-rows",
    "masked-keys-inert",
    "zero-sizes",
    "jvp-backward-pairing",
    "cached-decoding",
)


def in_order(ids: Iterable[str]) -> list[str]:
    """The early ones in their order, then all others in the order given."""
    given = list(ids)
    return [n for n in EARLY if n in given] + [n for n in given if n not in EARLY]
