"""Bounds with ALiBi slopes hold for every legal place and way of counting positions, and refute wrong distances."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from attnspec.pyspec.calls.formats import get_format, round_to
from attnspec.pyspec.oracle.bound import BoundDomain
from attnspec.pyspec.oracle.ledger import NUMPY_FLOAT64, Ledger, every_operation_stored, one_precision
from attnspec.pyspec.visibility import lower_right
from tests.pyspec.sloped import Problem, column, drawn, run


@dataclass(frozen=True)
class Kernel:
    """One way to compute with slopes: the format of every operation, whether each result goes to storage, the place of
    the slopes' term among the sums, where positions are counted from, and whether score gradients go to storage."""

    storage: str
    stored: bool
    order: str
    count: str
    term: Callable[[np.ndarray], np.ndarray] = lambda steps: steps
    cast_grad: bool = False

    def run(self, x: Problem, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Scores (only where counted as the spec does), output and slope gradient."""
        single = np.float32

        def keep(a: np.ndarray) -> np.ndarray:
            a = np.asarray(a).astype(single)
            return round_to(self.storage, a.astype(np.float64)).astype(single) if self.stored else a

        def total(terms: np.ndarray) -> np.ndarray:
            """Sum over the last axis in a random order, one float32 addition after the other."""
            shuffled = terms[..., rng.permutation(terms.shape[-1])]
            return np.add.accumulate(shuffled, axis=-1, dtype=single)[..., -1]

        def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            """A Bᵀ."""
            return keep(total(a[..., :, None, :] * b[..., None, :, :]))

        q, k, v, bias, grad = (t.astype(single) for t in (x.query, x.key, x.value, x.bias, x.grad))
        keys, j = x.away.shape[1], np.arange(x.away.shape[1], dtype=single)
        steps = {"query": -x.away, "first": j + 0 * x.away, "last": j - (keys - 1) + 0 * x.away}[self.count]
        steps = keep(self.term(steps))
        m, scale = column(x.slopes).astype(single), single(x.scale)
        dots, a = product(q, k), keep(m * steps)
        s = keep(dots * scale)
        if self.order == "bias first":
            s = keep(keep(s + bias) + a)
        elif self.order == "slopes first":
            s = keep(keep(s + a) + bias)
        elif self.order == "one bias":
            s = keep(s + keep(bias + a))
        else:
            s = keep(keep(keep(dots + keep(keep(m / scale) * steps)) * scale) + bias)
        top = np.max(np.where(x.visible, s, -np.inf), axis=-1, keepdims=True, initial=-np.inf)
        e = np.exp(np.where(x.visible, s - np.where(np.isinf(top), 0, top), -np.inf)).astype(single)
        mass = total(e)[..., None]
        w = keep(e / np.where(mass == 0, 1, mass))
        out = product(w, np.swapaxes(v, -1, -2))
        gp = product(grad, v)
        gs = keep(w * keep(gp - total(w * gp)[..., None]))
        if self.cast_grad:
            gs = round_to(self.storage, gs.astype(np.float64)).astype(single)
        joined = np.moveaxis(keep(gs * steps), 1, 0).reshape(3, -1)
        gm = total(joined)
        if self.stored or self.storage != "float32":
            out, gm = (round_to(self.storage, t.astype(np.float64)) for t in (out, gm))
        tensors = {"output": out, "grad_slopes": gm[None, :, None, None]}
        return tensors if self.count != "query" else {"scores": s, **tensors}


ORDERS = ("bias first", "slopes first", "one bias", "before the scale")
LEDGERS: dict[str, tuple[Ledger, bool]] = {
    "float32": (one_precision("float32"), False),
    "bfloat16, float32 inside": (one_precision("bfloat16"), False),
    "float16, float32 inside": (one_precision("float16"), False),
    "bfloat16 throughout": (every_operation_stored("bfloat16"), True),
    "float16 throughout": (every_operation_stored("float16"), True),
}


def leaves(x: Problem, seen: dict[str, np.ndarray], ledger: Ledger) -> list[str]:
    """The tensors with an entry that the ledger does not allow."""
    dom, own = BoundDomain(ledger), BoundDomain(NUMPY_FLOAT64)
    allowed, exact = run(dom, x), run(own, x)
    found = []
    for name, got in seen.items():
        value, slack = own.lower(exact[name])
        _, error = dom.lower(allowed[name])
        where = np.broadcast_to(x.visible, value.shape) if name == "scores" else np.ones(value.shape, dtype=bool)
        if (np.abs(got.astype(np.float64) - value) > error + slack)[where].any():
            found.append(name)
    return found


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", LEDGERS)
def test_legal_kernels_are_inside(name: str, order: str) -> None:
    """Any place of the slopes' term among the sums, and on causal rows any position to count from."""
    ledger, stored = LEDGERS[name]
    for seed in range(12):
        rng = np.random.default_rng([seed, 5])
        for count in ("query", "first", "last"):
            sizes = (3, 5) if seed % 3 else (2, 40)
            x = drawn(seed, ledger.storage, sizes, causal=count != "query" or seed % 2 == 0)
            if seed % 4 == 0:
                # Scores and biases that cancel, so that partial sums are larger than the score.
                x = replace(x, bias=round_to(ledger.storage, 64 * x.bias), query=round_to(ledger.storage, 8 * x.query))
            seen = Kernel(ledger.storage, stored, order, count).run(x, rng)
            assert leaves(x, seen, ledger) == [], f"seed {seed}, counted from the {count}"


@pytest.mark.parametrize("order", ORDERS)
def test_a_window_far_from_the_first_key(order: str) -> None:
    """Scores of a few near keys counted from a key far away: large numbers that cancel, each rounded."""
    ledger = replace(one_precision("float32"), exp_error=1.0)
    for seed in range(12):
        x, rng = drawn(seed, "float32", (2, 700), causal=True), np.random.default_rng(seed)
        near = np.broadcast_to((x.away <= 2) & lower_right(2, 700), x.visible.shape)
        slopes = round_to("float32", rng.uniform(0.5, 2.0, 3))
        x = replace(x, query=x.query * 2.0**-12, bias=x.bias * 2.0**-12, slopes=slopes, visible=near)
        assert leaves(x, Kernel("float32", False, order, "first").run(x, rng), ledger) == [], f"seed {seed}"


def test_score_gradients_in_storage_times_key_indices() -> None:
    """The error of a score gradient meets the position that the kernel counts, however near the key."""
    claimed = one_precision("bfloat16")
    ledger = replace(claimed, stores=(*claimed.stores, "scores_grad"))
    for seed in range(12):
        x, rng = drawn(seed, "bfloat16", (2, 200), causal=True), np.random.default_rng(seed)
        x = replace(x, visible=np.broadcast_to((x.away <= 4) & lower_right(2, 200), x.visible.shape))
        seen = Kernel("bfloat16", False, "bias first", "first", cast_grad=True).run(x, rng)
        assert leaves(x, seen, ledger) == [], f"seed {seed}"


WRONG: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "distances one too far on one side": lambda steps: np.where(np.arange(steps.shape[1]) > 1, steps - 1, steps),
    "a reward for distance": lambda steps: -steps,
    "halved": lambda steps: steps / 2,
    "the upper left corner": lambda steps: (
        -np.abs(np.arange(steps.shape[0])[:, None] - np.arange(steps.shape[1])[None, :])
    ),
    "no slopes": lambda steps: 0 * steps,
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("name", LEDGERS)
def test_wrong_distances_are_refuted(name: str, wrong: str) -> None:
    ledger, stored = LEDGERS[name]
    found: set[str] = set()
    for seed in range(80):
        if {"output", "grad_slopes"} <= found:
            return
        x = drawn(seed, ledger.storage, (3, 5))
        kernel = Kernel(ledger.storage, stored, "bias first", "query", WRONG[wrong])
        found |= set(leaves(x, kernel.run(x, np.random.default_rng(seed)), ledger))
    pytest.fail(f"refuted in {found} only")


def test_a_key_index_is_no_distance_where_keys_after_the_query_are_seen() -> None:
    """Counting from the first key is allowed where no query sees ahead, and only there."""
    ledger = one_precision("float32")
    x = replace(drawn(7, "float32"), visible=np.ones((2, 3, 3, 5), dtype=bool))
    seen = Kernel("float32", False, "bias first", "first").run(x, np.random.default_rng(0))
    assert leaves(x, seen, ledger) == ["output", "grad_slopes"]


@pytest.mark.parametrize("stage", ["alibi", "alibi_grad", "grad_slopes"])
def test_every_stage_that_stores_widens_the_gradient(stage: str) -> None:
    x, bare = drawn(8, "bfloat16"), replace(one_precision("bfloat16"), stores=())
    before, after = (run(BoundDomain(ledger), x)["grad_slopes"] for ledger in (bare, replace(bare, stores=(stage,))))
    assert (after.bound > before.bound).all()


def test_numbers_too_large_for_the_format_have_no_bound() -> None:
    x = replace(drawn(9, "float16"), slopes=np.full(3, get_format("float16").largest))
    bounded = run(BoundDomain(every_operation_stored("float16")), x)
    assert np.isinf(bounded["scores"].bound[..., 0, 0]).all()


def test_sums_of_three_may_be_taken_in_any_order() -> None:
    """A partial sum may be far larger than the whole: the bound of the sum charges for it."""
    dom = BoundDomain(one_precision("float32"))
    parts = [np.full((1, 1, 1, 1), v) for v in (3.0e7 + 2, -3.0e7, 0.3)]
    total = dom.add_up("biased", [dom.lift(p) for p in parts])
    for order in ((0, 1, 2), (0, 2, 1), (1, 2, 0)):
        run_sum = np.float32(0)
        for n in order:
            run_sum = np.float32(run_sum + np.float32(parts[n].item()))
        assert abs(float(run_sum) - 2.3) <= total.bound.item()
    two = [dom.lift(p) for p in parts[:2]]
    assert dom.add_up("biased", two).bound == dom.add("biased", *two).bound
