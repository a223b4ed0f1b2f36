"""`Ledger`: the declared numerics of a subject, from which every allowed error is derived."""

from __future__ import annotations

from dataclasses import dataclass, replace

from attnspec.pyspec.calls.formats import FORMATS, Format, get_format
from attnspec.pyspec.domain import STAGES

FINAL_STAGES = ("output", "grad_query", "grad_key", "grad_value", "grad_bias", "grad_slopes")


@dataclass(frozen=True)
class Ledger:
    """How a kernel rounds.

    Whatever is not said here is left open: the order of sums, flushing of subnormal inputs and results, and whether
    the scale goes to query, key, both as a root, or the scores. Tiles of a gradient are summed in ascending order.

    storage, compute: formats of the tensors and of every accumulation and elementwise operation.
    stores: stages (see attnspec.pyspec.domain.STAGES) whose result is rounded to `storage` as well.
    weights: "saved" when backward reuses the weights, "recomputed" when it forms exp(score - LSE) again.
    delta: "weights" for D = Σ P·Gp, "output" for D = Σ G·O with the rounded output.
    key_tile: keys per tile of an online softmax (None: one pass). gradient_tile: queries after which the running
    key and value gradients are rounded to `storage`, and the query gradient after each key tile (None: every
    gradient is rounded once, at the end).
    running_sums_stored: sums over the query heads of one key head, and over a broadcast bias axis, round to
    storage after every term.
    exp_error: error of exp in unit roundoffs of `compute`; exp_argument_roundings: roundings of its argument.
    tanh_error: relative error of tanh, the softcap's and that of additive scores, in unit roundoffs of `compute`.
    Where "capped" is among `stores` the quotient, the tanh and its square are rounded to storage as well, as
    an eager c * tanh(s / c) does.
    """

    name: str
    storage: str
    compute: str
    stores: tuple[str, ...] = FINAL_STAGES
    weights: str = "saved"
    delta: str = "weights"
    gradient_tile: int | None = None
    key_tile: int | None = None
    running_sums_stored: bool = False
    exp_error: float = 4.0
    exp_argument_roundings: float = 1.0
    tanh_error: float = 4.0

    def __post_init__(self) -> None:
        for field in ("storage", "compute"):
            if getattr(self, field) not in FORMATS:
                raise ValueError(f"ledger {self.name!r}: {field} = {getattr(self, field)!r}: expected one of "
                                 f"{', '.join(FORMATS)}")  # fmt: skip
        unknown = [stage for stage in self.stores if stage not in STAGES]
        if unknown:
            raise ValueError(
                f"ledger {self.name!r}: unknown stage {unknown[0]!r}: expected some of {', '.join(STAGES)}"
            )
        for field, options in (("weights", ("saved", "recomputed")), ("delta", ("weights", "output"))):
            if getattr(self, field) not in options:
                raise ValueError(f"ledger {self.name!r}: {field} = {getattr(self, field)!r}: expected one of {options}")
        for field in ("gradient_tile", "key_tile"):
            size = getattr(self, field)
            if size is not None and size < 1:
                raise ValueError(f"ledger {self.name!r}: {field} = {size}: expected a positive tile size or none")
        for field in ("exp_error", "exp_argument_roundings", "tanh_error"):
            if not getattr(self, field) >= 0:
                raise ValueError(f"ledger {self.name!r}: {field} = {getattr(self, field)}: expected a number >= 0")

    @property
    def storage_format(self) -> Format:
        """The tensors' format."""
        return get_format(self.storage)

    @property
    def compute_format(self) -> Format:
        """The accumulators' format."""
        return get_format(self.compute)


def compute_for(dtype: str) -> str:
    """The usual accumulation format: float64 for float64, float32 for everything else."""
    return "float64" if dtype == "float64" else "float32"


NUMPY_FLOAT64 = Ledger("numpy-float64", "float64", "float64", stores=())


def one_precision(dtype: str) -> Ledger:
    """Everything in the accumulation format, one final cast: torch's math kernel, and a careful reference."""
    return Ledger("one-precision", dtype, compute_for(dtype))


def every_operation_stored(dtype: str) -> Ledger:
    """Each operation rounds its result to storage: attention written in a framework's eager operations."""
    stages = tuple(stage for stage in STAGES if stage not in ("lse", "delta"))
    return Ledger("every-operation-stored", dtype, compute_for(dtype), stores=stages, running_sums_stored=True)


def flash(dtype: str, *, gradient_tile: int | None, key_tile: int) -> Ledger:
    """Online softmax over key tiles, weights cast to storage before both products, backward recomputed from LSE."""
    low = dtype not in ("float64", "float32")
    return Ledger(
        "flash",
        dtype,
        compute_for(dtype),
        stores=(*FINAL_STAGES, "consumed", "scores_grad") if low else FINAL_STAGES,
        weights="recomputed",
        delta="output",
        gradient_tile=gradient_tile if low else None,
        key_tile=key_tile,
        exp_error=24.0,
        exp_argument_roundings=2.0,
    )


def named_ledgers(dtype: str) -> dict[str, Ledger]:
    """Ledgers that `--ledger NAME` knows, for one dtype."""
    torch_flash = flash(dtype, gradient_tile=32, key_tile=512)
    kept = tuple(s for s in torch_flash.stores if s != "consumed")
    return {
        "math": one_precision(dtype),
        "eager": every_operation_stored(dtype),
        "flash": torch_flash,
        "flash-uncast": replace(torch_flash, name="flash-uncast", stores=kept),
        "float64-inside": replace(one_precision(dtype), name="float64-inside", compute="float64"),
    }
