"""What an exact answer costs: the adaptive oracle beside balls, mpmath and plain float64, in one run.

    python bench/oracle.py [--rounds 5] [--skip-slow]

Prints process time of one evaluation (output, LSE and all gradients), the ratio to float64, and how much faster than
mpmath the adaptive oracle is. "adaptive" judges a float32 and a float64 kernel's tensors: the first is decided by
float64 enclosures alone, the second falls back to balls where the allowed error is as small as the enclosure.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from attnspec.pyspec import AttentionCall, Oracle, bounds, evaluate, make_call, named_ledgers
from attnspec.pyspec.calls.formats import round_to
from attnspec.pyspec.domains import BallDomain, BigDomain, Float64Domain
from attnspec.pyspec.domains.ball import precision
from attnspec.pyspec.oracle.bound import BoundDomain
from attnspec.pyspec.oracle.ledger import NUMPY_FLOAT64

SIZES = ((4, 5, 3), (17, 19, 8), (64, 64, 32), (128, 257, 64))


def draw(queries: int, keys: int, width: int, dtype: str) -> AttentionCall:
    """A seeded call: 70 % of the keys visible, one empty row."""
    rng = np.random.default_rng(queries * 1000 + keys)

    def normal(*shape: int) -> np.ndarray:
        return round_to(dtype, rng.standard_normal(shape))

    visible = rng.random((1, 1, queries, keys)) < 0.7
    visible[..., 0, :] = False
    return make_call(
        normal(1, 1, queries, width),
        normal(1, 1, keys, width),
        normal(1, 1, keys, width),
        dtype=dtype,
        visible=visible,
        grad_output=normal(1, 1, queries, width),
    )


def kernel_result(call: AttentionCall) -> dict[str, np.ndarray]:
    """What a careful kernel would return: float64 rounded to the call's dtype."""
    found = evaluate(Float64Domain(), call)
    return {n: round_to(call.dtype, t if n != "lse" else t[..., 0]) for n, t in found.items()}


def judge(call: AttentionCall, seen: dict[str, np.ndarray], allowed: dict[str, np.ndarray]) -> int:
    """Judge every tensor with a new oracle; return how many elements went to balls."""
    oracle = Oracle(call)
    judged = [oracle.judge(name, seen[name], allowed[name]) for name in seen]
    assert all(j.inside for j in judged), "a correct result was refuted"
    return sum(j.escalated_count for j in judged)


def balls(call: AttentionCall) -> None:
    """Enclosures at 113 bits."""
    with precision(113):
        evaluate(BallDomain(), call)


@click.command(help=__doc__)
@click.option("--rounds", default=5, show_default=True, help="Rounds; the engines take turns in each.")
@click.option("--skip-slow", is_flag=True, help="Leave mpmath out at the two largest sizes.")
def main(rounds: int, skip_slow: bool) -> None:
    table = Table("queries, keys, width", "float64", "adaptive f32", "adaptive f64", "balls", "mpmath", title="ms")
    ratios = Table("queries, keys, width", "adaptive f32 ÷ float64", "mpmath ÷ adaptive f32", "to balls: f32, f64")
    for size in SIZES:
        low, high = draw(*size, "float32"), draw(*size, "float64")
        jobs = {
            call.dtype: (call, kernel_result(call), bounds(call, named_ledgers(call.dtype)["math"]))
            for call in (low, high)
        }
        engines: dict[str, Callable[[], object]] = {
            "float64": lambda call=low: evaluate(Float64Domain(), call),
            "adaptive f32": lambda job=jobs["float32"]: judge(*job),
            "adaptive f64": lambda job=jobs["float64"]: judge(*job),
            "enclosure": lambda call=low: evaluate(BoundDomain(NUMPY_FLOAT64), call),
            "balls": lambda call=low: balls(call),
            "mpmath": lambda call=low: evaluate(BigDomain(113), call),
        }
        times: dict[str, list[float]] = {name: [] for name in engines}
        for turn in range(rounds + 1):
            for name, run in engines.items():
                if name == "mpmath" and ((skip_slow and size[0] >= 64) or turn > 1):
                    continue
                repeats = 20 if name in ("float64", "adaptive f32", "enclosure") else 1
                start = time.process_time()
                for _ in range(repeats):
                    run()
                if turn:  # the first round warms up
                    times[name].append((time.process_time() - start) / repeats * 1e3)
        middle = {name: statistics.median(t) if t else float("nan") for name, t in times.items()}
        shown = ("float64", "adaptive f32", "adaptive f64", "balls", "mpmath")
        table.add_row(str(size), *(f"{middle[n]:.2f}" for n in shown))
        ratios.add_row(
            str(size),
            f"{middle['adaptive f32'] / middle['float64']:.2f}",
            f"{middle['mpmath'] / middle['adaptive f32']:.0f}",
            f"{judge(*jobs['float32'])}, {judge(*jobs['float64'])}",
        )
    console = Console()
    console.print(table, ratios)


if __name__ == "__main__":
    main()
