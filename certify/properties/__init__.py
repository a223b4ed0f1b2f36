"""The properties: every claim that a subject is held to, in one registry."""

from certify.properties import agreement, exact, gradients, interface, keys, rows, scores  # noqa: F401
from certify.properties.model import Bench, Outcome, Property, registered

__all__ = ["Bench", "Outcome", "Property", "registered"]
