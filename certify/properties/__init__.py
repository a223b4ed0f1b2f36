"""The properties: every claim that a subject is held to, in one registry."""

from attnspec.certify.properties import (  # noqa: F401
    agreement,
    contract,
    dropout,
    dropout_masks,
    exact,
    families,
    gradients,
    interface,
    keys,
    modifiers,
    policies,
    rows,
    scores,
    visibility,
    visibility_hidden,
)
from attnspec.certify.properties.model import Bench, Outcome, Property, registered

__all__ = ["Bench", "Outcome", "Property", "registered"]
