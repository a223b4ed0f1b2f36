"""What holds of the interface: ways to say the same call, shapes, types, and inputs left alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attnspec.certify.properties import needs
from attnspec.certify.properties.agree import agree, expected_tensors, joined, observed
from attnspec.certify.properties.model import Bench, Outcome, Property, call_rng, register
from attnspec.certify.properties.surgery import with_least_mask
from attnspec.certify.subjects.subject import Capabilities
from attnspec.pyspec import AttentionCall, CallError, Dropout, Layout, Visibility
from attnspec.pyspec.calls.call import LAYOUTS, MASK_ENCODINGS, MASK_LAYOUTS
from attnspec.pyspec.calls.cut import told_explicitly
from attnspec.pyspec.dropout import multiplier
from attnspec.pyspec.heads import grouped


def _encodings(call: AttentionCall, bench: Bench) -> Outcome:
    """Every encoding that can say this call, and the mask both broadcast and expanded."""
    outcomes = []
    whole = np.ascontiguousarray(call.visible)
    for encoding in MASK_ENCODINGS:
        for mask in (call.visibility.mask, whole):
            for bias in {id(b): b for b in (call.bias, None if _silent(call.bias) else call.bias)}.values():
                try:
                    said = call.but(encoding=encoding, bias=bias, visibility=replace(call.visibility, mask=mask))
                except CallError:
                    continue  # this encoding cannot say this call
                outcomes.append(agree(said, bench, tensors=_TENSORS, against=call))
    return joined(*outcomes)


_TENSORS = ("output", "lse", "grad_query", "grad_key", "grad_value")


def _silent(bias: np.ndarray | None) -> bool:
    return bias is not None and not bias.any()


def _layouts(call: AttentionCall, bench: Bench) -> Outcome:
    """Every claimed layout of each tensor, in as few runs as there are layouts."""
    claimed = [n for n in LAYOUTS if n in bench.subject.capabilities.layouts]
    rng = call_rng(call, "layouts")
    orders = [[str(n) for n in rng.permutation(claimed)] for _ in range(3)]
    return joined(
        *(
            agree(call.but(layout=Layout(query, key, value, str(rng.choice(MASK_LAYOUTS)))), bench, against=call)
            for query, key, value in zip(*orders, strict=True)
        )
    )


def _grouped(call: AttentionCall) -> AttentionCall | None:
    """Each key head read by two query heads more than before."""
    a, rng = call.axes, call_rng(call, "groups")
    if a.key_heads == 0:
        return None
    if rng.random() < 0.3:
        # All query heads read one key head, as in multi-query attention.
        call = call.but(key=call.key[:, :1], value=call.value[:, :1], head_map=(0,) * a.query_heads)
        a = call.axes
    group = 2 if a.key_heads * 2 <= 6 else 1
    heads = a.key_heads * group
    if group == 1 and a.query_heads == a.key_heads:
        return None
    pick = rng.integers(max(a.query_heads, 1), size=heads) if a.query_heads else None
    if pick is None:
        return None

    def spread(x: np.ndarray) -> np.ndarray:
        return x if x.shape[1] == 1 else x[:, pick]

    v = call.visibility
    return told_explicitly(call).but(
        query=call.query[:, pick],
        grad_output=None if call.grad_output is None else call.grad_output[:, pick],
        bias=None if call.bias is None else spread(call.bias),
        visibility=Visibility(spread(v.mask), v.query_valid, v.empty_rows),
        dropout=None if call.dropout is None else replace(call.dropout, multiplier=spread(call.dropout.multiplier)),
        head_map=grouped(heads, a.key_heads),
    )


def _head_map(call: AttentionCall, bench: Bench) -> Outcome:
    direct = agree(call, bench)
    heads = list(call.head_map)
    repeated = call.but(
        key=call.key[:, heads], value=call.value[:, heads], head_map=tuple(range(call.axes.query_heads))
    )
    alone = agree(repeated, bench, tensors=("output", "lse", "grad_query"), against=call)
    return joined(direct, alone)


def _unchanged(call: AttentionCall, bench: Bench) -> Outcome:
    """The call as it is, and as kernels are tempted to write: hidden keys, a multiplier, room around the tensors."""
    tempting = _tempting(call, bench.subject.capabilities)
    for one in (call, tempting) if bench.uncovered(tempting) is None else (call,):
        seen = observed(one, bench)
        if seen.changed_inputs:
            return Outcome(broken=f"the subject overwrote its input {', '.join(seen.changed_inputs)}")
    return Outcome(kernel=seen.kernel)


def _tempting(call: AttentionCall, claims: Capabilities) -> AttentionCall:
    """Keys that nobody sees, a dropout multiplier and views into larger memory, as far as they are claimed."""
    a = call.axes
    if needs.masks(claims) is None and a.keys > 1:
        # Nothing else is hidden: the mask is one row, as key padding has it.
        call = with_least_mask(call.but(bias=None, encoding="bool"), (np.arange(a.keys) % 2 == 0)[None, None, None])
    if needs.dropout(claims) is None:
        call = _dropped(call)
    views = [n for n in ("padded", "offset") if n in claims.layouts]
    if not views:
        return call
    rng = call_rng(call, "views")
    query, key, value = (str(n) for n in rng.choice(views, 3))
    return call.but(layout=Layout(query, key, value, call.layout.mask))


def _types(call: AttentionCall, bench: Bench) -> Outcome:
    seen = observed(call, bench)
    for name in expected_tensors(call, bench):
        if name != "lse" and seen.dtypes.get(name) != call.dtype:
            return Outcome(broken=f"{name} has dtype {seen.dtypes.get(name)}: expected {call.dtype}")
        if seen.devices.get(name, bench.device) != bench.device:
            return Outcome(broken=f"{name} is on {seen.devices.get(name)}: expected {bench.device}")
    return Outcome(kernel=seen.kernel)


# Those first without which there is more than a shape to get wrong.
ZEROED = ("keys", "key_width", "queries", "value_width", "batch")


def _zero(call: AttentionCall) -> AttentionCall | None:
    """One of the sizes becomes zero: calls drawn by number take them in turn."""
    number = call.origin.get("index", "")
    turn = int(number) if number.isdecimal() else int(call_rng(call, "zero").integers(len(ZEROED)))
    axis = ZEROED[turn % len(ZEROED)]
    call = told_explicitly(call)
    v, g = call.visibility, call.grad_output
    none = slice(0, 0)

    def cut(x: np.ndarray | None, at: int) -> np.ndarray | None:
        if x is None:
            return None
        return x if x.shape[at] == 1 and axis != "batch" else np.take(x, np.arange(0), axis=at)

    if axis == "key_width":
        return call.but(query=call.query[..., none], key=call.key[..., none])
    if axis == "value_width":
        return call.but(value=call.value[..., none], grad_output=None if g is None else g[..., none])
    at = {"batch": 0, "queries": 2, "keys": 3}[axis]
    mask = cut(v.mask, at)
    assert mask is not None
    valid = v.query_valid
    if valid is not None and axis != "keys":
        valid = np.take(valid, np.arange(0), axis=0 if axis == "batch" else 1)
    kv = {"batch": 0, "keys": 2}.get(axis)
    q = {"batch": 0, "queries": 2}.get(axis)
    drop = call.dropout

    def shorter(x: np.ndarray, where: int | None) -> np.ndarray:
        return x if where is None else np.take(x, np.arange(0), axis=where)

    return call.but(
        query=shorter(call.query, q),
        key=shorter(call.key, kv),
        value=shorter(call.value, kv),
        grad_output=None if g is None else shorter(g, q),
        bias=cut(call.bias, at),
        visibility=Visibility(mask, valid, v.empty_rows),
        dropout=None if drop is None else replace(drop, multiplier=np.asarray(cut(drop.multiplier, at))),
    )


def _zero_sizes(call: AttentionCall, bench: Bench) -> Outcome:
    return agree(call, bench)


def _dropped(call: AttentionCall) -> AttentionCall:
    rng = call_rng(call, "dropout")
    p = float(rng.choice([0.2, 0.5, 0.75]))
    keep = rng.random(call.score_shape) >= p
    return call.but(dropout=Dropout(p, multiplier(keep, p)))


def _dropout(call: AttentionCall, bench: Bench) -> Outcome:
    trained = agree(call, bench)
    assert call.dropout is not None
    evaluated = call.but(dropout=replace(call.dropout, training=False))
    return joined(trained, agree(evaluated, bench, against=call.but(dropout=None)))


register(
    Property(
        id="encodings-agree",
        claim="A mask says the same as a boolean, as an additive -inf, as a flag, broadcast or expanded.",
        theorem="visibility_composition",
        check=_encodings,
        small=True,
        catches=("LLMs-from-scratch#1061", "pytorch PR#191612", "pytorch#187801"),
    )
)
register(
    Property(
        id="layouts-agree",
        claim="Strides, offsets and padding of the tensors in memory do not change the result.",
        theorem=None,
        basis="interface: the spec has no memory",
        check=_layouts,
        small=True,
        catches=("pytorch#181133", "FlagGems#5235", "pytorch#146377"),
    )
)
register(
    Property(
        id="head-map",
        claim="Grouped heads equal repeated key and value heads, and their gradients are summed over each group.",
        theorem="grouped_heads_equal_repeated",
        check=_head_map,
        prepare=_grouped,
        needs=needs.grouped_heads,
        catches=("onnx#7274", "HipKittens PR#22", "pytorch#193893"),
        also=("grouped_head_gradients_sum_over_groups",),
    )
)
register(
    Property(
        id="dropout-multiplier",
        claim="A realised dropout multiplier scales normalised weights in both passes, and is off in evaluation.",
        theorem="dropout_adjoint",
        check=_dropout,
        prepare=_dropped,
        needs=needs.dropout,
        catches=("pytorch PR#197563", "apex#816", "nki-samples PR#81"),
        also=(
            "dropout_off_is_identity",
            "dropout_multiplier_mean_one",
        ),
    )
)
register(
    Property(
        id="inputs-unchanged",
        claim="The subject overwrites none of its inputs.",
        theorem=None,
        basis="interface",
        check=_unchanged,
        catches=("flash-attention#638",),
    )
)
register(
    Property(
        id="dtype-shape-device",
        claim="Outputs and gradients have the specified shapes, the inputs' dtype and the inputs' device.",
        theorem=None,
        basis="interface",
        check=_types,
        catches=("pytorch#97111", "pytorch#171190"),
    )
)
register(
    Property(
        id="zero-sizes",
        claim="Calls with no batch, no query, no key or no width return empty or zero tensors of the right shape.",
        theorem="no_keys_output_zero",
        check=_zero_sizes,
        prepare=_zero,
        needs=lambda c: needs.zero_sizes(c) or needs.empty_rows(c),
        catches=("pytorch#184330", "flash-attention#2421"),
        also=("no_queries_gradients_zero",),
    )
)
