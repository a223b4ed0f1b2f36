"""What a kernel's interface promises beside numbers: the same bits again, and no answer to a call without meaning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from attnspec.certify.properties import needs
from attnspec.certify.properties.agree import observed
from attnspec.certify.properties.model import Bench, Outcome, Property, call_rng, register
from attnspec.certify.properties.surgery import over_several_tiles, with_mask
from attnspec.pyspec import AttentionCall
from attnspec.pyspec.calls.formats import round_to
from attnspec.pyspec.heads import is_grouped

_RUNS = 2


def _rounding(call: AttentionCall) -> AttentionCall:
    """Values whose sums round, over more keys than a small tile has: an order of summation then shows."""
    rng = call_rng(call, "values that round")
    call = over_several_tiles(call)
    return call.but(value=round_to(call.dtype, rng.standard_normal(call.value.shape)))


def _again(call: AttentionCall, bench: Bench) -> Outcome:
    first = observed(call, bench)
    for _ in range(_RUNS):
        again = observed(call, bench)
        for name, one in first.tensors.items():
            other = again.tensors[name]
            # Zeros of both signs are told apart.
            same = (one == other) & (np.signbit(one) == np.signbit(other))
            differs = ~(same | (np.isnan(one) & np.isnan(other)))
            if differs.any():
                at = tuple(int(n) for n in np.argwhere(differs)[0])
                values = f"{float(one[at])!r} and then {float(other[at])!r}"
                return Outcome(
                    broken=f"the same call gave {name}{list(at)} = {values} ({int(differs.sum())} entries differ)",
                    kernel=first.kernel,
                )
    return Outcome(kernel=first.kernel)


@dataclass(frozen=True)
class Fault:
    """Tensors that make a call meaningless, in place of its own; one of another type is stored in that type."""

    what: str
    raw: Mapping[str, np.ndarray]


def faults(call: AttentionCall) -> Iterator[Fault]:
    """Ways to spoil a call: types, lengths, widths, batches and heads that do not fit one another."""
    a, key, value = call.axes, call.key, call.value
    other = "float16" if call.dtype == "float32" else "float32"
    with np.errstate(over="ignore"):
        yield Fault(f"key in {other} beside a query in {call.dtype}", {"key": key.astype(other)})
        yield Fault(f"value in {other} beside a query in {call.dtype}", {"value": value.astype(other)})
    yield Fault(f"{a.keys} keys and {a.keys + 1} values", {"value": _longer(value, 2)})
    yield Fault(f"queries of width {a.key_width} and keys of width {a.key_width + 1}", {"key": _longer(key, 3)})
    if a.keys > 1 and call.encoding == "bool":  # a mask over one key may stand for any number
        yield Fault(
            f"{a.keys + 1} keys beside a mask over {a.keys}", {"key": _longer(key, 2), "value": _longer(value, 2)}
        )
    if a.batch > 1:  # one batch may stand for any number
        yield Fault(
            f"{a.batch + 1} batches of keys and values for {a.batch} of queries",
            {"key": _longer(key, 0), "value": _longer(value, 0)},
        )
    if a.query_heads > 1:
        count = next(n for n in range(2, a.query_heads + 2) if a.query_heads % n)
        heads = np.arange(count) % a.key_heads
        yield Fault(
            f"{a.query_heads} query heads and {count} key and value heads",
            {"key": key[:, heads], "value": value[:, heads]},
        )


def _longer(x: np.ndarray, axis: int) -> np.ndarray:
    """One more along an axis, a repetition of the last."""
    return np.concatenate([x, np.take(x, [-1], axis=axis)], axis=axis)


def _fit(call: AttentionCall) -> AttentionCall | None:
    """A call whose heads stand in equal groups, with a whole boolean mask or none, and no gradient."""
    a = call.axes
    if a.any_zero or not is_grouped(call.head_map, a.key_heads):
        return None
    plain = call.but(bias=None, encoding="bool", dropout=None, grad_output=None)
    if call_rng(call, "mask").random() < 0.5:
        return with_mask(plain, call.visible)
    return with_mask(plain, np.ones((1, 1, 1, 1), dtype=bool)).but(encoding="none")


def _refused(call: AttentionCall, bench: Bench) -> Outcome:
    whole = observed(call, bench)
    for fault in faults(call):
        if bench.observe(call, fault.raw).error is None:
            return Outcome(broken=f"{fault.what}: an answer came back, expected an exception", kernel=whole.kernel)
    return Outcome(kernel=whole.kernel)


register(
    Property(
        id="same-bits-again",
        claim="The same call gives the same bits again, in every tensor.",
        theorem=None,
        basis="interface: the spec is a function",
        check=_again,
        prepare=_rounding,
        needs=needs.deterministic,
        modifiers=True,
        catches=("flash-attention#2244",),
    )
)
register(
    Property(
        id="meaningless-refused",
        claim="A call whose types, lengths, widths, batches or heads do not fit one another raises an exception.",
        theorem=None,
        basis="interface: the spec gives such a call no meaning",
        check=_refused,
        prepare=_fit,
        needs=needs.refusals,
        small=True,
        catches=("flash-linear-attention#1029", "pytorch#171190"),
    )
)
