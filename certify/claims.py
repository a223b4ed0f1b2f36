"""What a subject claims to support, each claim once, and why a property or a call lies outside of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal

from attnspec.pyspec.calls.call import LAYOUTS, MASK_ENCODINGS
from attnspec.pyspec.calls.features import FEATURES
from attnspec.pyspec.calls.score import FAMILIES

SkipKind = Literal["not_claimed", "known_divergence", "no_such_call"]


@dataclass(frozen=True)
class Skip:
    """Why nothing was tested.

    kind: outside the subject's claim; among its known divergences; or the property does not speak of such a call.
    feature: the claim that is lacking, the name of the divergence, or "". text: for people; nobody parses it.
    """

    kind: SkipKind
    feature: str
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Capabilities:
    """What a subject claims to support. A cell outside the claim is listed as not covered, never as passed.

    Of calls, as in the feature table (attnspec.pyspec.calls.features): dtypes; encodings of the mask; layouts of query,
    key and value; gradients; bias, finite and additive; value_width_differs from the key width; grouped_heads in equal
    groups; any_head_map; dropout_multiplier, realised and given; empty_rows, which follow the zero policy; zero_sizes;
    any_scale besides the default; softcap, c tanh(s / c) before the bias; sink, a logit per query head without a value;
    slopes of ALiBi, one a query head, times the distance |i + K - Q - j|; families of scores besides dot products;
    returns_weights, a tensor "weights" [B,Hq,Q,K] where the call asks for it; samples_dropout: it draws dropout itself.
    Of results: bias_gradient; returns_lse; isolates_poison: NaN and infinities in keys and values that nobody sees
    stay without effect; deterministic: the same call gives the same bits again; refuses_meaningless: types, lengths,
    widths, batches or heads that do not fit one another raise an exception; empty_row_contract: where empty_rows is not
    claimed, what rows that see no key are known to come out as instead, "mean_of_values" or "nan" (masks.policies).
    devices: where it runs.
    """

    dtypes: tuple[str, ...] = ("float32",)
    devices: tuple[str, ...] = ("cpu",)
    encodings: tuple[str, ...] = MASK_ENCODINGS
    layouts: tuple[str, ...] = LAYOUTS
    gradients: bool = True
    bias: bool = True
    bias_gradient: bool = True
    value_width_differs: bool = True
    grouped_heads: bool = True
    any_head_map: bool = False
    dropout_multiplier: bool = False
    returns_lse: bool = False
    empty_rows: bool = True
    zero_sizes: bool = True
    any_scale: bool = True
    isolates_poison: bool = False
    deterministic: bool = False
    refuses_meaningless: bool = False
    empty_row_contract: str | None = None
    softcap: bool = False
    sink: bool = False
    slopes: bool = False
    families: tuple[str, ...] = ()
    returns_weights: bool = False
    samples_dropout: bool = False


@dataclass(frozen=True)
class Claim:
    """One thing that a subject may claim and a property may need.

    words: its name in a sentence. holds: is it claimed? needs: claims without which this one says nothing.
    is_entry: it is one of a list of names, such as the mask encodings.
    """

    name: str
    words: str
    holds: Callable[[Capabilities], bool]
    needs: tuple[str, ...] = ()
    is_entry: bool = False


# What claims of call features rest on, where they rest on others.
_NEEDS = {"empty_rows": ("masks",), "bias": ("additive_masks",), "returned_weights": ("dropout",)}


def _family(name: str) -> Claim:
    return Claim(f"{name}_score", f"{name} scores", lambda c: name in c.families, is_entry=True)


CLAIMS: dict[str, Claim] = {
    claim.name: claim
    for claim in (
        Claim("masks", "explicit masks", lambda c: bool({"bool", "additive"} & set(c.encodings)), is_entry=True),
        Claim("additive_masks", "additive masks", lambda c: "additive" in c.encodings, is_entry=True),
        Claim("causal_flag", "a causal flag", lambda c: "causal_flag" in c.encodings, is_entry=True),
        *(
            Claim(feature.name, feature.words, attrgetter(feature.claim), _NEEDS.get(feature.name, ()))
            for feature in FEATURES
            if feature.claim and feature.names is None
        ),
        *(_family(name) for name in FAMILIES if name != "dot"),
        Claim("bias_gradient", "the gradient of a bias", lambda c: c.bias_gradient, ("bias", "gradients")),
        Claim("lse", "LSE", lambda c: c.returns_lse),
        Claim("poison", "isolation of NaN in hidden keys", lambda c: c.isolates_poison, ("masks",)),
        Claim("deterministic", "the same bits from the same call", lambda c: c.deterministic),
        Claim("refusals", "an exception for calls without meaning", lambda c: c.refuses_meaningless),
        # Listed as `empty_rows` where there is neither.
        Claim("empty_row_rule", "anything about rows that see no key",
              lambda c: c.empty_rows or c.empty_row_contract is not None, ("masks",), is_entry=True),
    )
}  # fmt: skip


def unclaimed(capabilities: Capabilities, names: Iterable[str]) -> Skip | None:
    """The first of these claims that a subject does not make, with those that it rests on first; None for none.

    Raises ValueError for a name that is no claim.
    """
    for name in names:
        if name not in CLAIMS:
            raise ValueError(f"claim {name!r}: expected one of {', '.join(CLAIMS)}")
        claim = CLAIMS[name]
        lacking = unclaimed(capabilities, claim.needs)
        if lacking is not None:
            return lacking
        if not claim.holds(capabilities):
            return Skip("not_claimed", name, f"{claim.words} not claimed")
    return None


def requires(*names: str) -> Callable[[Capabilities], Skip | None]:
    """Why a subject cannot be held to a property that needs all of these claims, or None."""
    return lambda capabilities: unclaimed(capabilities, names)


def left_unclaimed(capabilities: Capabilities) -> list[str]:
    """What a subject does not claim, in words, each thing once; dtypes and devices stand elsewhere."""
    found = [
        claim.words
        for claim in CLAIMS.values()
        if not claim.is_entry and not claim.holds(capabilities) and unclaimed(capabilities, claim.needs) is None
    ]
    for feature in FEATURES:
        if feature.names is not None and feature.claim != "dtypes":
            claimed = getattr(capabilities, feature.claim)
            options = [
                n for n in feature.parts[0].options if n not in claimed and n != getattr(feature.absent, "name", "")
            ]
            if options:
                found.append(f"{feature.words} {' or '.join(options)}")
    return found
