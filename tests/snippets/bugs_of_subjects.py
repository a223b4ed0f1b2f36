"""Bugs in what a signature cannot say: further claims, ends of the process, score families, given and own dropout."""

from __future__ import annotations

from tests.snippets.planted import CLAIMING, FUNCTION, SUBJECT, Planted, wrong

RETURN = "return output.to(query.dtype), lse"
COMPUTED = "attention(call, given, draw=drawn, scores=score, normalise=softmax_rows)"


def _is(name: str, right: str, instead: str, *refuted_by: str, isolated: bool = False) -> Planted:
    return wrong(CLAIMING, name, right, instead, *refuted_by, isolated=isolated)


CLAIMS = (
    _is("LSE in base two", "torch.logsumexp(scores, dim=-1)", "torch.logsumexp(scores, dim=-1) / 0.6931471805599453",
        "lse-agreement"),
    _is("sink ignored on empty rows", "[:3], 1)", "[:3], 1).masked_fill(~visible.any(-1, keepdim=True), -torch.inf)",
        "sink-empty-row"),
    _is("hidden values times zero", "v.masked_fill(unseen, 0.0)", "v", "poison-isolated"),
    _is("types not checked", "if not query.dtype == key.dtype == value.dtype:", "if False:", "meaningless-refused"),
    _is("the process ends where types differ", "raise TypeError(", "__import__('os').abort()\n        raise TypeError(",
        "meaningless-refused", isolated=True),
    _is("last bit by turns", RETURN, f"""attention.runs = getattr(attention, "runs", 0) + 1
    output = output + output.detach() * 1e-6 * (attention.runs % 2)
    {RETURN}""", "same-bits-again"),
    _is("every second run raises", RETURN, f"""attention.runs = getattr(attention, "runs", 0) + 1
    if attention.runs % 2 == 0:
        raise RuntimeError("out of luck")
    {RETURN}""", "same-bits-again"),
)  # fmt: skip

PROCESSES = (
    wrong(FUNCTION, "two keys end the process", RETURN, f"""if keys > 1:
        import os

        os.kill(os.getpid(), 11)
    {RETURN}""", "forward-agreement", isolated=True),
    wrong(FUNCTION, "two keys hang", RETURN, f"""if keys > 1:
        import time

        time.sleep(3600)
    {RETURN}""", "forward-agreement", isolated=True, call_timeout=3.0),
)  # fmt: skip


PRELUDE = """
from dataclasses import replace
from attnspec.pyspec.calls.call import Visibility

def seeing(visible):
    return call.but(visibility=Visibility(visible), dropout=None, encoding="additive")
"""


def _computes(name: str, body: str, *refuted_by: str, dtype: str = "float32") -> Planted:
    """Another body of the subject's computation; RIGHT stands for the right tensors."""
    lines = (PRELUDE + body).strip().replace("\n", "\n    ").replace("RIGHT", COMPUTED)
    return wrong(SUBJECT, name, f"return {COMPUTED}", lines, *refuted_by, dtype=dtype)


DROPOUT = (
    _computes("dropout before the normaliser", """
if call.multiplier is not None:
    call = seeing(call.visible & (call.multiplier > 0))
return RIGHT""", "dropout-after-normaliser", "dropout-value-shift"),
    _computes("dropped as hidden in the backward pass", """
found = RIGHT
if call.multiplier is not None:
    other = attention(seeing(call.visible & (call.multiplier > 0)), given)
    found |= {n: t for n, t in other.items() if n.startswith("grad_")}
return found""", "dropout-three-zeros"),
    _computes("fresh mask in the backward pass", """
found = RIGHT
if call.multiplier is not None:
    keep = np.random.default_rng(7).random(call.score_shape) >= call.dropout.probability
    fresh = replace(call.dropout, multiplier=keep / (1.0 - call.dropout.probability))
    other = attention(call.but(dropout=fresh), given)
    found |= {n: t for n, t in other.items() if n.startswith("grad_")}
return found""", "dropout-mask-replayed"),
    _computes("weights before dropout for those after", """
if call.dropout is not None and call.dropout.returned_weights == "after_dropout":
    call = call.but(dropout=replace(call.dropout, returned_weights="before_dropout"))
return RIGHT""", "dropout-returned-weights"),
    _computes("dropout in evaluation", """
if call.dropout is not None:
    call = call.but(dropout=replace(call.dropout, training=True))
return RIGHT""", "dropout-multiplier", dtype="float16"),
    wrong(SUBJECT, "drops too often", ">= own.probability", ">= 1.2 * own.probability", "dropout-own-mask"),
    wrong(SUBJECT, "seed ignored", "default_rng(own.seed)", "default_rng(0)", "dropout-own-mask"),
    wrong(SUBJECT, "own dropout not rescaled", "keep / (1.0 - own.probability)", "keep * 1.0", "dropout-own-mask"),
    wrong(SUBJECT, "some seeds raise", "    keep = np", """    if own.seed % 16 == 9:
        raise ArithmeticError("an unlucky seed")
    keep = np""", "dropout-own-mask"),
)  # fmt: skip

FAMILIES = (
    _computes("a positive bias revives", """
if call.bias is not None:
    call = seeing(call.visible | (np.broadcast_to(call.bias, call.score_shape) > 0))
return RIGHT""", "bias-never-revives"),
    _computes("metric transposed", """
if call.score.name == "bilinear":
    call = call.but(score=replace(call.score, metric=np.swapaxes(call.score.metric, -1, -2)))
return RIGHT""", "bilinear-agreement"),
    _computes("offset left out", """
if call.score.name == "additive":
    call = call.but(score=replace(call.score, offset=np.zeros_like(call.score.offset)))
return RIGHT""", "additive-agreement"),
    _computes("no norms", """
from attnspec.pyspec.calls.score import Dot

def plain(family, *rest):
    return score(Dot() if family.name == "cosine" else family, *rest)

return attention(call, given, draw=drawn, scores=plain, normalise=softmax_rows)""",
        "cosine-agreement", "cosine-ignores-length", dtype="bfloat16"),
)  # fmt: skip

RETURNED = (
    wrong(SUBJECT, "arrays of another type", "dict.fromkeys(tensors, call.dtype)",
          'dict.fromkeys(tensors, "float64")', "dtype-shape-device"),
    wrong(SUBJECT, "key overwritten", "changed_inputs=()", 'changed_inputs=("key",) if call.axes.keys > 1 else ()',
          "inputs-unchanged"),
    wrong(SUBJECT, "LSE not returned", "for n, t in found.items()}", 'for n, t in found.items() if n != "lse"}',
          "lse-agreement"),
)  # fmt: skip

BUGS = (*CLAIMS, *PROCESSES, *DROPOUT, *FAMILIES, *RETURNED)
