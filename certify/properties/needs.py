"""What properties need of a subject, by name; each says why one with these capabilities cannot be held to them."""

from __future__ import annotations

from attnspec.certify.subjects.claims import requires

gradients = requires("gradients")
lse = requires("lse")
bias = requires("bias")
bias_gradient = requires("bias_gradient")
masks = requires("masks")
causal_flag = requires("causal_flag")
grouped_heads = requires("grouped_heads")
empty_rows = requires("empty_rows")
dropout = requires("dropout")
any_scale = requires("scale")
zero_sizes = requires("zero_sizes")
deterministic = requires("deterministic")
refusals = requires("refusals")
poison = requires("poison")
softcap = requires("softcap")
sink = requires("sink")
