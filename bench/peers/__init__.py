"""How other projects test attention today: each rule with its own data, shapes, reference and tolerance."""

from __future__ import annotations

from bench.peers.flash_attention import FA2, FA3
from bench.peers.flex_attention import FLEX
from bench.peers.gradcheck import GRADCHECK
from bench.peers.jax_splash import SPLASH
from bench.peers.kernelbench import KERNELBENCH
from bench.peers.model import Case, Kernel, Rule, verdict
from bench.peers.onnx_vectors import ONNX
from bench.peers.pytorch_sdpa import PYTORCH
from bench.peers.torch_testing import ASSERT_CLOSE
from bench.peers.triton_tutorial import TRITON
from bench.peers.vllm import VLLM
from bench.peers.xformers import XFORMERS

RULES: tuple[Rule, ...] = (
    FA2, FA3, PYTORCH, FLEX, XFORMERS, TRITON, VLLM, SPLASH, ONNX, KERNELBENCH, ASSERT_CLOSE, GRADCHECK,
)  # fmt: skip

__all__ = ["RULES", "Case", "Kernel", "Rule", "verdict"]
