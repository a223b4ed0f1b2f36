"""The conformance suite on this project's own subjects, or on those that --subject names."""

from attnspec.certify.conformance import test_property

__all__ = ["test_property"]
