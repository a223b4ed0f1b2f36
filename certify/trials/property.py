"""What a property is: a claim, the theorem that it rests on, and the trials that put it to a subject."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

import numpy as np

from attnspec.certify.claims import Capabilities, Skip
from attnspec.certify.errors import UsageError
from attnspec.certify.trials.order import in_order
from attnspec.certify.trials.trial import Trial
from attnspec.pyspec import AttentionCall
from attnspec.pyspec.calls.features import MODIFIERS

ENTRY_POINTS = "attnspec.properties"

# What a generator of trials is: it yields trials, is sent what each came to (an engine.Seen), and may return why the
# claim does not speak of the call.
Trials = Generator[Trial, Any, Any]
Prepare = Callable[[AttentionCall], "AttentionCall | None"]
Diagnose = Callable[[AttentionCall, Mapping[str, np.ndarray], Mapping[str, np.ndarray]], Iterable[str]]


@dataclass(frozen=True)
class Property:
    """One claim about every subject.

    id: stable, kebab-case. claim: one sentence. theorem: headline in AttnProofs that licenses the check, or None where
    the claim is about floating point or the interface (`basis` then says what it rests on). trials: generator of
    trials for a call and the subject's claims. prepare: turns a drawn call into one that the claim is about, or None.
    needs: why a subject with these claims cannot be held to it, or None. share: cases of it, relative to others.
    small: draw small shapes, for claims that run a subject several times on one call. resembles: public reports of the
    kind that it would have caught. also: further headline theorems that it or its oracle leans on. diagnose: the named
    mistakes that a refuted result agrees with. keep: which of a softcap, a sink and slopes a call may have; it is
    asked of the call without the others. within_claim: the call itself must lie within the subject's claim.
    """

    id: str
    claim: str
    theorem: str | None
    trials: Callable[[AttentionCall, Capabilities], Trials]
    prepare: Prepare
    needs: Callable[[Capabilities], Skip | None]
    basis: str = ""
    share: float = 1.0
    small: bool = False
    resembles: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    diagnose: Diagnose | None = None
    keep: tuple[str, ...] = ()
    within_claim: bool = True


# Filled when the modules of certify.properties are imported.
_REGISTRY: dict[str, Property] = {}


def claim(
    id: str,
    sentence: str,
    *,
    theorem: str | None = None,
    prepare: Prepare | None = None,
    needs: Callable[[Capabilities], Skip | None] | None = None,
    keep: tuple[str, ...] = (),
    **details: Any,
) -> Callable[[Callable[..., Trials]], Callable[..., Trials]]:
    """Register a generator of trials as a property.

    The generator takes the call, or the call and the subject's claims. details: further fields of Property.
    Raises ValueError where an id is taken, or where neither a theorem nor a basis is named.
    """
    if id in _REGISTRY:
        raise ValueError(f"property {id!r} is registered twice")
    if theorem is None and not details.get("basis"):
        raise ValueError(f"property {id!r} names no theorem: say in `basis` what it rests on")
    ready = (lambda call: call) if prepare is None else prepare

    def register(trials: Callable[..., Trials]) -> Callable[..., Trials]:
        _REGISTRY[id] = Property(
            id=id,
            claim=sentence,
            theorem=theorem,
            trials=trials if len(inspect.signature(trials).parameters) == 2 else lambda call, _: trials(call),
            prepare=lambda call: ready(without_modifiers(call, keep)),
            needs=(lambda _: None) if needs is None else needs,
            keep=keep,
            **details,
        )
        return trials

    return register


def without_modifiers(call: AttentionCall, keep: tuple[str, ...] = ()) -> AttentionCall:
    """The call without softcap, sink and slopes, but for those that are kept."""
    gone = [n for n in MODIFIERS if n not in keep and getattr(call, n) is not None]
    if not gone:
        return call
    origin = {n: "none" if n in gone else label for n, label in call.origin.items()}
    return call.but(**dict.fromkeys(gone), origin=origin)


@cache
def _loaded() -> None:
    import_module("attnspec.certify.properties")
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            entry.load()
        except Exception as error:
            raise UsageError(
                f"properties {entry.name!r} of an installed package: importing {entry.value!r} failed with "
                f"{type(error).__name__}: {error}; mend or remove the package that brings them"
            ) from error


def registered() -> dict[str, Property]:
    """All properties by id, our own and those of installed packages, those that refute most wrong kernels first."""
    _loaded()
    return {name: _REGISTRY[name] for name in in_order(_REGISTRY)}
