"""The properties: every claim that a subject is held to, in one registry (attnspec.certify.trials.registered)."""

from attnspec.certify.properties import (  # noqa: F401
    agreement,
    alibi,
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
