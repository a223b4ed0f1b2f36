"""Bugs in the numbers of a function with torch's signature: scores, normaliser, output, gradients, modifiers."""

from __future__ import annotations

from tests.snippets.planted import FUNCTION, Planted, wrong

MASKED = "scores = scores.masked_fill(~visible, -torch.inf)"
SOFTMAX = "torch.softmax(shown, dim=-1)"
ZEROED = ".masked_fill(dead, 0.0)\n    lse"
PRODUCT = "weights[..., :keys] @ v"
CAST = "output.to(query.dtype)"
ADDED = "scores = scores + bias"
CAPPED = "softcap * torch.tanh(scores / softcap)"
SLOPES = "if alibi_slopes is not None:\n"


def _is(name: str, right: str, instead: str, *refuted_by: str, dtype: str = "float32") -> Planted:
    return wrong(FUNCTION, name, right, instead, *refuted_by, dtype=dtype)


SCORES = (
    _is("sign of the scale lost", "multiplier = scale if", "multiplier = abs(scale) if", "scale"),
    _is("scale applied twice", "(q @ k.mT) * multiplier", "(q @ k.mT) * multiplier**2", "scale-gate", dtype="float16"),
    _is(
        "later keys score higher",
        MASKED,
        f"scores = scores + 0.01 * torch.arange(keys)\n    {MASKED}",
        "counting-probe",
        "ties-share-equally",
        "key-permutation",
    ),
    _is("bias clamped", "attn_mask.to(wide)", "attn_mask.to(wide).clamp(max=5.0)", "bias-shift"),
    _is("no guard for width zero", "width**-0.5 if width else 1.0", "width**-0.5", "zero-sizes", dtype="bfloat16"),
)

NORMALISER = (
    _is(
        "one added to the mass",
        SOFTMAX,
        "torch.softmax(torch.nn.functional.pad(shown, (0, 1)), dim=-1)[..., :-1]",
        "unit-rows",
        "singletons-copy",
    ),
    _is(
        "powers of two",
        SOFTMAX,
        "torch.softmax(shown * 0.6931471805599453, dim=-1)",
        "normaliser-is-softmax",
        "bilinear-reduces-to-dot",
        dtype="float64",
    ),
    _is("no maximum subtracted", SOFTMAX, "(shown.exp() / shown.exp().sum(-1, keepdim=True))", "large-logits"),
    _is(
        "maximum over all rows",
        MASKED,
        f"{MASKED}\n    scores = scores - scores.detach().amax().clamp(min=0.0) if scores.numel() else scores",
        "exceptional-rows",
    ),
    _is(
        "mass held constant",
        SOFTMAX,
        "(shown - torch.logsumexp(shown, -1, keepdim=True).detach()).exp()",
        "score-gradient-row-sum",
    ),
)

OUTPUT = (
    _is("one percent large", PRODUCT, "weights[..., :keys] @ (1.01 * v)", "forward-agreement", "convex-hull",
        dtype="bfloat16"),
    _is("last bits lost", PRODUCT, f"{PRODUCT} * (1 + 2.0**-20)", "exactness-witness"),
    _is("in another shape", CAST, f"{CAST} if query.requires_grad else {CAST}.squeeze(0)", "forward-agreement"),
    _is("of the wide type", CAST, "output", "dtype-shape-device", dtype="bfloat16"),
)  # fmt: skip

GRADIENTS = (
    _is("query gradient missing", "query.to(wide)", "query.detach().to(wide)", "gradient-agreement", dtype="bfloat16"),
    _is(
        "gradient of the weights doubled",
        ZEROED,
        ".masked_fill(dead, 0.0)\n    weights = 2.0 * weights - weights.detach()\n    lse",
        "jvp-backward-pairing",
        "gradient-agreement",
    ),
    _is(
        "value gradient three percent off",
        PRODUCT,
        "weights[..., :keys] @ (1.03 * v - 0.03 * v.detach())",
        "value-gradient-conserved",
    ),
    _is(
        "bias gradient of the first row alone",
        ADDED,
        """bias = bias.masked_fill(~visible, 0.0)
        first = torch.arange(queries)[:, None] == 0
        scores = scores + bias.detach() + (bias - bias.detach()) * first""",
        "shared-bias-gradient",
    ),
    Planted(
        "hidden values get a gradient",
        FUNCTION,
        ("masked-gradient-zero",),
        (
            ("unseen = ~visible.any(dim=2)[..., None]", "unseen = torch.zeros(1, dtype=torch.bool)"),
            (ZEROED, ".masked_fill(dead, 0.0) + 1e-6\n    lse"),
        ),
    ),
)

MODIFIERS = (
    _is(
        "softcap after the bias",
        ADDED,
        """if softcap is not None:
            scores = softcap * torch.atanh(scores / softcap)
        scores = scores + bias
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)""",
        "softcap-agreement",
    ),
    _is(
        "softcap after the mask",
        MASKED,
        f"{MASKED}\n    scores = scores if softcap is None else torch.where(visible, scores, -softcap)",
        "softcap-before-mask",
    ),
    _is("softcap not multiplied back", CAPPED, "torch.tanh(scores / softcap)", "softcap-off-is-identity-limit"),
    _is("sink carries a value", PRODUCT, f"{PRODUCT} + weights[..., keys:] * v[:, :, :1]", "sink-agreement"),
    _is("sink ignored", "if sink is not None:", "if False:", "sink-takes-mass", dtype="float16"),
    _is(
        "distances from the upper left",
        " + (keys - queries) - torch",
        " - torch",
        "alibi-agreement",
        "alibi-cached-decoding",
    ),
    _is(
        "slope gradient halved",
        "alibi_slopes.to(wide)[:",
        "(0.5 * (alibi_slopes + alibi_slopes.detach())).to(wide)[:",
        "alibi-slope-gradient",
    ),
    _is(
        "slope of zero taken as missing",
        SLOPES,
        """if alibi_slopes is not None and not alibi_slopes.any():
        scores = scores - 0.01 * torch.arange(keys)
    elif alibi_slopes is not None:
""",
        "alibi-zero-slope",
    ),
)

BUGS = (*SCORES, *NORMALISER, *OUTPUT, *GRADIENTS, *MODIFIERS)
