"""A kernel that keeps to a ledger and is otherwise free: the adversary that the bound must hold against.

Whatever a ledger leaves open is drawn: the order of every sum, where the scale is placed, whether a row is
normalised before or after the value product, how exp errs, whether grouped heads are summed in one run, and
whether subnormal numbers are flushed to zero on the way in and out. Slow and plain: it rounds after each operation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attnspec.pyspec import AttentionCall, Ledger
from attnspec.pyspec.calls.formats import round_to

ORDERS = ("forward", "backward", "random", "tree", "growing", "shrinking")


@dataclass
class LegalKernel:
    """One kernel: a ledger, a source of its free choices, and whether it flushes subnormal numbers."""

    ledger: Ledger
    rng: np.random.Generator
    flush: bool = False
    order: str | None = None
    placement: str | None = None

    def __post_init__(self) -> None:
        self.number = self.ledger.compute_format.dtype.type
        self.unit = self.ledger.compute_format.unit_roundoff
        self.tiny = self.ledger.compute_format.tiny

    # arithmetic

    def rounded(self, x: np.ndarray) -> np.ndarray:
        """In the accumulation format; subnormal results become zero when the kernel flushes."""
        x = np.asarray(x).astype(self.number)
        return np.where(np.abs(x) < self.tiny, self.number(0), x) if self.flush else x

    def kept(self, stage: str, x: np.ndarray) -> np.ndarray:
        """Rounded to storage where the ledger stores this stage."""
        return self.stored(x) if stage in self.ledger.stores else x

    def stored(self, x: np.ndarray) -> np.ndarray:
        """Rounded to storage."""
        return round_to(self.ledger.storage, np.asarray(x, dtype=np.float64)).astype(self.number)

    def total(self, terms: np.ndarray) -> np.ndarray:
        """Sum over the first axis, in some order."""
        if len(terms) == 0:
            return np.zeros(terms.shape[1:], dtype=self.number)
        order = self.order or str(self.rng.choice(ORDERS))
        if order == "backward":
            terms = terms[::-1]
        elif order == "random":
            terms = terms[self.rng.permutation(len(terms))]
        elif order in ("growing", "shrinking"):
            ranks = np.argsort(np.abs(terms).reshape(len(terms), -1).sum(axis=1))
            terms = terms[ranks if order == "growing" else ranks[::-1]]
        if order == "tree":
            while len(terms) > 1:
                half = len(terms) // 2
                joined = self.rounded(terms[:half] + terms[half : 2 * half])
                terms = np.concatenate([joined, terms[2 * half :]])
            return terms[0]
        if not self.flush:
            return np.add.accumulate(terms, axis=0, dtype=self.number)[-1]
        run = terms[0]
        for term in terms[1:]:
            run = self.rounded(run + term)
        return run

    def product(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """A B."""
        return self.total(self.rounded(a.T[:, :, None] * b[:, None, :]))

    def exp(self, x: np.ndarray) -> np.ndarray:
        """exp with as much error as the ledger admits (numpy's own takes two of the roundings)."""
        room = max(self.ledger.exp_error - 2.0, 0.0)
        further = max(self.ledger.exp_argument_roundings - 1.0, 0.0)
        x = x.astype(np.float64)
        if self.rng.integers(2):
            # All that is allowed, in one direction or the other: as two keys of one row may well have it.
            first, second = self.rng.choice([-1.0, 1.0], size=(2, *x.shape))
        else:
            first, second = self.rng.uniform(-1.0, 1.0, size=(2, *x.shape))
        finite = np.where(np.isfinite(x), x, 0.0)
        return self.rounded(np.exp(x + self.unit * further * finite * first) * (1.0 + self.unit * room * second))

    # attention

    def run(self, call: AttentionCall) -> dict[str, np.ndarray]:
        """Every tensor of the call, as float64."""
        with np.errstate(all="ignore"):
            return self._run(call)

    def _run(self, call: AttentionCall) -> dict[str, np.ndarray]:
        a = call.axes
        found: dict[str, np.ndarray] = {
            "output": np.zeros((a.batch, a.query_heads, a.queries, a.value_width)),
            "lse": np.zeros((a.batch, a.query_heads, a.queries)),
        }
        scores_grads = np.zeros(call.score_shape, dtype=self.number)
        if call.grad_output is not None:
            for name in ("query", "key", "value"):
                found[f"grad_{name}"] = np.zeros(getattr(call, name).shape)
        for b in range(a.batch):
            parts: dict[int, list[tuple[np.ndarray, ...]]] = {g: [] for g in range(a.key_heads)}
            for h, g in enumerate(call.head_map):
                head = self._head(call, b, h, g)
                for name in ("output", "lse", "grad_query"):
                    if name in head:
                        found[name][b, h] = head[name]
                if call.grad_output is not None:
                    scores_grads[b, h] = head["scores_grad"]
                    parts[g].append((head["key_left"], head["key_right"], head["value_left"], head["value_right"]))
            for g, members in parts.items():
                if members:
                    found["grad_key"][b, g] = self._summed("grad_key", [(m[0], m[1]) for m in members])
                    found["grad_value"][b, g] = self._summed("grad_value", [(m[2], m[3]) for m in members])
        if call.grad_output is not None and call.bias is not None:
            found["grad_bias"] = self._bias_grad(call, scores_grads)
        return {n: np.asarray(t, dtype=np.float64) for n, t in found.items()}

    def _scores(self, call: AttentionCall, b: int, h: int, q: np.ndarray, k: np.ndarray) -> np.ndarray:
        c = self.rounded(np.array(call.scale_value))
        root = self.rounded(np.sqrt(np.abs(c)))
        free = not {"dot", "scaled"} & set(self.ledger.stores)
        placement = self.placement or str(self.rng.choice(["on_scores", "on_query", "on_key", "split"]))
        if not free or placement == "on_scores":
            s = self.kept("scaled", self.rounded(self.kept("dot", self.product(q, k.T)) * c))
        elif placement == "on_query":
            s = self.product(self.rounded(q * c), k.T)
        elif placement == "on_key":
            s = self.product(q, self.rounded(k * c).T)
        else:
            s = self.product(self.rounded(q * root * np.sign(c)), self.rounded(k * root).T)
        if call.bias is None:
            return s
        bias = np.broadcast_to(call.bias, call.score_shape)[b, h]
        return self.kept("biased", self.rounded(s + self.rounded(bias)))

    def _head(self, call: AttentionCall, b: int, h: int, g: int) -> dict[str, np.ndarray]:
        q, k, v = (self.rounded(x) for x in (call.query[b, h], call.key[b, g], call.value[b, g]))
        visible = call.visible[b, h]
        z = None if call.multiplier is None else self.rounded(call.multiplier[b, h])
        s = np.where(visible, self._scores(call, b, h, q, k), self.number(-np.inf))
        if self.ledger.key_tile is None:
            weights, out, lse = self._one_pass(s, z, v)
        else:
            weights, out, lse = self._online(s, z, v)
        empty = ~visible.any(axis=-1)
        out = self.kept("output", out)
        out[empty] = 0.0
        found = {"output": out, "lse": np.where(empty, -np.inf, self.kept("lse", lse))}
        if call.grad_output is None:
            return found
        if self.ledger.weights == "recomputed":
            shift = np.where(empty, self.number(0), lse)[:, None]
            weights = np.where(visible, self.exp(self.rounded(s - shift)), self.number(0))
        grad = self.rounded(call.grad_output[b, h])
        through = self.kept("consumed_grad", self.product(grad, v.T))
        if z is not None:
            through = self.kept("weights_grad", self.rounded(through * z))
        pair = (grad, out) if self.ledger.delta == "output" else (weights, through)
        delta = self.total(self.rounded(pair[0] * pair[1]).T)[:, None]
        scores_grad = self.kept("scores_grad", self.rounded(weights * self.rounded(through - delta)))
        scores_grad = np.where(visible, scores_grad, self.number(0))
        consumed = weights if z is None else self.rounded(weights * z)
        c = self.rounded(np.array(call.scale_value))
        root = self.rounded(np.sqrt(np.abs(c)))
        split = not {"dot", "scaled", "scaled_grad"} & set(self.ledger.stores) and bool(self.rng.integers(2))
        first, second = (root * np.sign(c), root) if split else (c, None)
        scaled = self.kept("scaled_grad", self.rounded(scores_grad * first))
        k, q = (x if second is None else self.rounded(x * second) for x in (k, q))
        found["scores_grad"] = scores_grad
        found["grad_query"] = self._tiled("grad_query", self.ledger.key_tile, scaled.T, k)
        found["key_left"], found["key_right"] = scaled, q
        found["value_left"], found["value_right"] = self.kept("consumed", consumed), grad
        return found

    def _one_pass(
        self, s: np.ndarray, z: np.ndarray | None, v: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        top = np.max(s, axis=-1, keepdims=True, initial=-np.inf)
        top = np.where(np.isneginf(top), self.number(0), top).astype(self.number)
        terms = self.exp(self.rounded(s - top))
        mass = self.total(terms.T)[:, None]
        safe = np.where(mass == 0, self.number(1), mass)
        weights = self.kept("weights", self.rounded(terms / safe))
        lse = self.rounded(top + self.rounded(np.log(safe)))[:, 0]
        late = not {"weights", "consumed"} & set(self.ledger.stores) and bool(self.rng.integers(2))
        consumed = terms if late else weights
        if z is not None:
            consumed = self.rounded(consumed * z)
        out = self.product(self.kept("consumed", consumed), v)
        return weights, self.rounded(out / safe) if late else out, lse

    def _online(self, s: np.ndarray, z: np.ndarray | None, v: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Tiles of keys with a running maximum; the weights of a tile are cast before they are normalised."""
        tile = self.ledger.key_tile
        assert tile is not None
        queries, keys = s.shape
        top = np.full((queries, 1), -np.inf, dtype=self.number)
        mass = np.zeros((queries, 1), dtype=self.number)
        out = np.zeros((queries, v.shape[1]), dtype=self.number)
        for start in range(0, keys, tile):
            at = slice(start, start + tile)
            higher = np.maximum(top, s[:, at].max(axis=-1, keepdims=True))
            shift = np.where(np.isneginf(higher), self.number(0), higher)
            shrink = self.exp(self.rounded(top - shift))
            terms = self.exp(self.rounded(s[:, at] - shift))
            consumed = terms if z is None else self.rounded(terms * z[:, at])
            mass = self.rounded(self.rounded(mass * shrink) + self.total(terms.T)[:, None])
            out = self.rounded(self.rounded(out * shrink) + self.product(self.kept("consumed", consumed), v[at]))
            top = higher
        safe = np.where(mass == 0, self.number(1), mass)
        lse = self.rounded(np.where(np.isneginf(top), self.number(0), top) + self.rounded(np.log(safe)))
        return np.zeros_like(s), self.rounded(out / safe), lse[:, 0]

    # gradients

    def _tiled(self, stage: str, tile: int | None, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """leftᵀ right, the running sum rounded to storage after each tile where the ledger says so."""
        if self.ledger.gradient_tile is None or tile is None:
            return self.kept(stage, self.product(left.T, right))
        return self._running(tile, [(left, right)])

    def _running(self, tile: int, pairs: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        run = np.zeros((pairs[0][0].shape[1], pairs[0][1].shape[1]), dtype=self.number)
        for left, right in pairs:
            for start in range(0, len(left), tile):
                at = slice(start, start + tile)
                run = self.stored(self.rounded(run + self.product(left[at].T, right[at])))
        return run

    def _summed(self, stage: str, pairs: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        """Gradient of a key head: the sum over its query heads, each on its own or all in one run."""
        together = len(pairs) > 1 and bool(self.rng.integers(2))
        tile = self.ledger.gradient_tile
        if together:
            if tile is not None:
                return self._running(tile, pairs)
            terms = [self.rounded(left[:, :, None] * right[:, None, :]) for left, right in pairs]
            return self.kept(stage, self.total(np.concatenate(terms)))
        parts = np.stack([self._tiled(stage, tile, left, right) for left, right in pairs])
        return self._total_of_parts(stage, parts)

    def _total_of_parts(self, stage: str, parts: np.ndarray) -> np.ndarray:
        if not self.ledger.running_sums_stored:
            return self.kept(stage, self.total(parts)) if len(parts) > 1 else parts[0]
        run = parts[0]
        for part in parts[1:]:
            run = self.stored(self.rounded(run + part))
        return run

    def _bias_grad(self, call: AttentionCall, scores_grads: np.ndarray) -> np.ndarray:
        assert call.bias is not None
        lost = [n for n in range(4) if call.bias.shape[n] == 1 and call.score_shape[n] != 1]
        each = self.kept("grad_bias", scores_grads)
        if not lost:
            return each
        if self.rng.integers(2):
            front = np.moveaxis(each, lost, range(len(lost)))
            rest = front.shape[len(lost) :]
            return self.kept("grad_bias", self.total(front.reshape(-1, *rest))).reshape(call.bias.shape)
        for axis in lost:
            shape = list(each.shape)
            shape[axis] = 1
            parts = np.moveaxis(each, axis, 0)
            empty = np.zeros(parts.shape[1:], dtype=self.number)
            each = (self._total_of_parts("grad_bias", parts) if len(parts) else empty).reshape(shape)
        return each
