"""One mask in both passes: the one that is given, or the one that the subject draws.

Equal scores and unit values make a mask visible: with P = 1/n and V = 1 the output is P ⊙ Z itself, and with G = 1 so
is the value gradient. What is then claimed of chance is claimed with the probability of a false alarm stated here,
from exact binomial tails: a right subject is refuted at most so often.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from attnspec.certify.claims import requires
from attnspec.certify.properties.dropout import dropped
from attnspec.certify.trials.diagnosis import Tensors
from attnspec.certify.trials.expectations import Moved
from attnspec.certify.trials.outcome import Failure
from attnspec.certify.trials.property import Trials, claim
from attnspec.certify.trials.run import GRADIENTS, failures
from attnspec.certify.trials.trial import Expectation, Run, Trial, recorded
from attnspec.pyspec import AttentionCall, Dropout, Judgement, Layout, Visibility
from attnspec.pyspec.calls.call import OwnDropout
from attnspec.pyspec.dropout import multiplier
from attnspec.pyspec.oracle.counts import count_interval
from attnspec.strategies.derived import call_rng

# A right subject fails one check of chance at most this often.
FALSE_ALARM = Fraction(1, 10**9)
_SEEDS = 16


def _visible_mask(call: AttentionCall) -> AttentionCall | None:
    """Equal scores, unit values and unit output gradients: output and value gradient show the consumed weights."""
    a = call.axes
    if 0 in call.score_shape:
        return None
    width = max(a.queries, a.keys)
    lead = (a.batch, a.query_heads)
    return AttentionCall(
        query=np.zeros((*lead, a.queries, width)),
        key=np.zeros((*lead, a.keys, width)),
        value=np.broadcast_to(np.eye(a.keys, width), (*lead, a.keys, width)).copy(),
        dtype=call.dtype,
        visibility=Visibility(np.ones((1, 1, 1, 1), dtype=bool)),
        head_map=tuple(range(a.query_heads)),
        grad_output=np.broadcast_to(np.eye(a.queries, width), (*lead, a.queries, width)).copy(),
        encoding="none",
        layout=Layout(),
        origin=call.origin,
    )


def _visible_mask_given(call: AttentionCall) -> AttentionCall | None:
    shown = _visible_mask(call)
    return None if shown is None else dropped(shown)


def _shows_mask(call: AttentionCall) -> bool:
    return not call.query.any() and call.bias is None and bool(call.visible.all())


def _fresh_mask(call: AttentionCall, observed: Tensors, allowed: Tensors) -> Iterable[str]:
    """Do output and value gradient show masks of this rate that are not the one in force?"""
    if call.multiplier is None or call.dropout is None or not _shows_mask(call) or "grad_value" not in observed:
        return
    queries, keys = call.score_shape[2:]
    masks = []
    for name, size in (("output", keys), ("grad_value", queries)):
        found, bound = observed[name][..., :size], allowed[name][..., :size].max(initial=0.0)
        # The bound of a kept entry serves for all: a dropped one is exactly zero under the right mask.
        is_kept = np.abs(found - 1.0 / (keys * (1.0 - call.dropout.probability))) <= bound
        masks.append(is_kept if (is_kept | (found == 0.0)).all() else None)
    output, gradient = masks
    if output is not None and (output != (call.multiplier > 0)).any():
        yield "drew another mask when it was replayed: the output does not show the one in force"
    elif output is not None and gradient is not None and (np.swapaxes(gradient, -1, -2) != output).any():
        yield "fresh mask in the backward pass: the value gradient shows another mask than the output"


@claim(
    "dropout-mask-replayed",
    "The backward pass uses the multiplier of the forward pass, not a fresh one.",
    theorem="dropout_adjoint",
    prepare=_visible_mask_given,
    needs=requires("dropout", "gradients"),
    diagnose=_fresh_mask,
    small=True,
)
def dropout_mask_replayed(call: AttentionCall) -> Trials:
    if call.grad_output is None or call.dropout is None:
        return "no output gradient or no multiplier"
    zero = np.zeros((1, 1, 1, 1))
    again = tuple(Moved(name, zero, zero, again=True) for name in ("output", "grad_value"))
    yield Trial(call, other=call, tensors=("output", *GRADIENTS), expect=again)


@recorded
@dataclass(frozen=True)
class OwnMasks(Expectation):
    """Masks that the subject draws under several seeds keep their rate, and are not all the same.

    probability: of being dropped. seeds: those asked, from the first on. Output entries show the kept weights.
    """

    probability: float
    first: int
    seeds: int = _SEEDS

    def calls(self, call: AttentionCall) -> list[AttentionCall]:
        """The calls that are run, one a seed."""
        return [call.but(own_dropout=OwnDropout(self.probability, self.first + n)) for n in range(self.seeds)]

    @property
    def finds(self) -> tuple[str, ...]:
        """Names of judgements, or kinds of failures."""
        return ("chance",)

    def judge(self, run: Run) -> Iterator[Judgement | Failure]:
        """A failure of the rate, or of the seeds."""
        p, masks = self.probability, []
        for call in self.calls(run.trial.call):
            seen = run.held.run(call)
            wrong = tuple(failures(seen, call, run.held.claims))
            if wrong:
                yield from wrong
                return
            masks.append(seen.tensors["output"][..., : call.axes.keys] > 0)
        kept, trials = sum(int(m.sum()) for m in masks), sum(m.size for m in masks)
        low, high = self.interval(trials)
        if not low <= kept <= high:
            text = (
                f"dropout of probability {p} kept {kept} of {trials} weights: expected {low} to {high} "
                f"but for a chance of at most {float(FALSE_ALARM):g}"
            )
            yield Failure("chance", "output", text)
        # Two draws of one weight agree with this chance; all of them under all seeds, with its power.
        agreeing = Fraction(p) ** self.seeds + (1 - Fraction(p)) ** self.seeds
        if agreeing ** masks[0].size <= FALSE_ALARM and all(np.array_equal(m, masks[0]) for m in masks):
            yield Failure("chance", "output", f"{self.seeds} seeds drew the same mask")

    def interval(self, trials: int) -> tuple[int, int]:
        """How many of so many weights may be kept."""
        low, high = count_interval(trials, 1 - Fraction(self.probability), FALSE_ALARM)
        return low, high

    def source(self, shown: Judgement | Failure, trial: Trial) -> list[str]:
        """Counts again, over the runs of all seeds."""
        a = trial.call.axes
        low, high = self.interval(self.seeds * a.batch * a.query_heads * a.queries * a.keys)
        return [
            f"seeds = [{', '.join(f'run_seed_{n}' for n in range(self.seeds))}]",
            f"masks = [[float(x) > 0 for x in run_seed()['output'][..., :{a.keys}].flatten()] for run_seed in seeds]",
            "kept = sum(map(sum, masks))",
            f"print(f'{{kept}} weights kept, expected {low} to {high}')",
            f"assert {low} <= kept <= {high}",
            "assert any(mask != masks[0] for mask in masks), 'all seeds drew the same mask'",
        ]


@claim(
    "dropout-own-mask",
    "Dropout that the subject draws keeps its rate, rescales, replays by seed and is off at probability 0.",
    theorem="dropout_multiplier_mean_one",
    also=("dropout_off_is_identity",),
    prepare=_visible_mask,
    needs=requires("own_dropout"),
    diagnose=_fresh_mask,
    small=True,
)
def dropout_own_mask(call: AttentionCall) -> Trials:
    """Masks that the subject draws itself, under several seeds: read off, replayed, and counted."""
    if not _shows_mask(call):
        return "the mask cannot be read off this call"
    rng = call_rng(call, "own")
    p = float(rng.choice([0.25, 0.5, 0.75]))
    first = int(rng.integers(2**31))
    for seed in (first, first + 1):
        drawn = call.but(own_dropout=OwnDropout(p, seed))
        seen = yield Trial(drawn, claimed_as=call, tensors=())
        if not seen.tensors:
            return None
        # The same seed again must draw the same mask, forward and backward.
        keep = seen.tensors["output"][..., : call.axes.keys] > 0
        realised = call.but(dropout=Dropout(p, multiplier(keep, p)))
        tensors = ("output", *GRADIENTS)
        yield Trial(drawn, claimed_as=call, against=realised, bounds_of=realised, tensors=tensors)
    yield Trial(call, tensors=(), expect=(OwnMasks(p, first),))
    off = call.but(own_dropout=OwnDropout(0.0, first))
    yield Trial(off, claimed_as=call, against=call, bounds_of=call)
    return None
