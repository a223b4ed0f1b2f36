"""The record that travels with a compiled visibility relation: what was applied, where, and by whom."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from attnspec.pyspec.calls.call import CallError

POLARITY = "true_means_visible"
TOPOLOGIES = ("bidirectional", "causal", "prefix", "tree", "cross")
BATCH_LAYOUTS = ("dense", "padded", "packed", "cache")

# Each of these already says which keys lie in a query's past: a second one can only take legal edges away.
CAUSAL_FAMILY = ("causal", "prefix", "tree")


class VisibilityError(CallError):
    """A visibility request contradicts itself or its sizes; the message names the field, the value and the mend."""


@dataclass(frozen=True)
class Applied:
    """One predicate that took part in the conjunction: its name, who applied it, and its parameters in words."""

    predicate: str
    by: str
    detail: str = ""


@dataclass(frozen=True)
class Handoff:
    """How a relation came about, complete enough to compile it again; immutable for one call.

    axes: stored lengths of [B, Hq, Q, K], 1 where an axis is broadcast; shape: the lengths it broadcasts to.
    alignment: "upper_left", "lower_right", "positions", or "none" where no predicate looks at positions.
    query_positions and key_positions: the rule they follow, or "explicit". offset: position of query 0 under such a
    rule. predicates: in order of application. lowered: encodings made of it. digest: SHA-256 of the stored mask.
    """

    shape: tuple[int, int, int, int]
    axes: tuple[int, int, int, int]
    batch_layout: str
    topology: str
    alignment: str
    query_positions: str
    key_positions: str
    offset: tuple[int, ...] | None
    head_sharing: str
    predicates: tuple[Applied, ...]
    parameters: dict[str, Any] = field(default_factory=dict)
    key_valid: str = "all keys"
    query_valid: str = "all queries"
    polarity: str = POLARITY
    lowered: tuple[Applied, ...] = ()
    digest: str = ""

    def names(self) -> tuple[str, ...]:
        """Names of the predicates, in order of application."""
        return tuple(a.predicate for a in self.predicates)

    def applied(self, predicate: str, by: str, detail: str = "") -> Handoff:
        """The record after one more predicate; a VisibilityError when causality would be applied twice.

        Also the question a kernel's own flag must pass: `handoff.applied("causal", by="is_causal flag")`.
        """
        if predicate in CAUSAL_FAMILY:
            before = next((a for a in self.predicates if a.predicate in CAUSAL_FAMILY), None)
            if before is not None:
                raise VisibilityError(
                    f"predicates = {predicate!r} by {by}: {before.predicate!r} was already applied by {before.by}; "
                    f"drop one of the two, since a second causal region hides keys that the first one shows"
                )
            if self.topology == "cross":
                raise VisibilityError(
                    f"predicates = {predicate!r} by {by}: queries and keys are different sequences "
                    "(cross-attention), so no triangle orders them; restrict memory by a predicate of its own"
                )
        elif predicate in self.names():
            raise VisibilityError(f"predicates = {predicate!r} by {by}: already applied; compose it once, before")
        return replace(self, predicates=(*self.predicates, Applied(predicate, by, detail)))

    def lowered_to(self, encoding: str, by: str) -> Handoff:
        """The record after the relation was put into an encoding; a VisibilityError on the second time."""
        if self.lowered:
            first = self.lowered[0]
            raise VisibilityError(
                f"lowered = {encoding!r} by {by}: this relation was already lowered to {first.predicate!r} by "
                f"{first.by}; lower the compiled relation once and pass nothing beside it"
            )
        return replace(self, lowered=(Applied(encoding, by),))

    def as_dict(self) -> dict[str, Any]:
        """The record in JSON types."""
        return _plain(asdict(self))


def _plain(x: Any) -> Any:
    if isinstance(x, dict):
        return {k: _plain(v) for k, v in x.items()}
    return [_plain(v) for v in x] if isinstance(x, list | tuple) else x
