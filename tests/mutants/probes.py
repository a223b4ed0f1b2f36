"""Small named calls that between them make every planted bug change a bit."""

from __future__ import annotations

from .probes_masks import MASKS
from .probes_operands import OPERANDS
from .probing import Probes

PROBES: Probes = {**OPERANDS, **MASKS}
