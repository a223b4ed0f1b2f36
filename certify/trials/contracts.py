"""What may be expected of a run that no number tells: types, the same bits again, inputs left alone, refusals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from attnspec.certify.trials.outcome import Failure
from attnspec.certify.trials.run import expected_tensors, wanted_shapes
from attnspec.certify.trials.trial import Expectation, Run, Trial, recorded
from attnspec.pyspec import Judgement


@recorded
@dataclass(frozen=True, eq=False)
class NotANumber(Expectation):
    """A tensor is NaN there."""

    tensor: str
    where: np.ndarray

    @property
    def finds(self) -> tuple[str, ...]:
        """Names of judgements, or kinds of failures."""
        return ("type",)

    def judge(self, run: Run) -> Iterator[Judgement | Failure]:
        """A failure at the first number."""
        found = np.argwhere(self.where & ~np.isnan(run.tensors[self.tensor]))
        if len(found):
            at = tuple(int(n) for n in found[0])
            number = float(run.tensors[self.tensor][at])
            text = f"{self.tensor}{list(at)} = {number!r}: expected NaN, as the contract says"
            yield Failure("type", self.tensor, text)

    def source(self, shown: Judgement | Failure, trial: Trial) -> list[str]:
        """An assertion over all of them."""
        shape = wanted_shapes(trial.call)[self.tensor]
        places = [tuple(int(n) for n in at) for at in np.argwhere(np.broadcast_to(self.where, shape))]
        return [f'assert all(math.isnan(float(seen["{self.tensor}"][at])) for at in {places!r})']


@recorded
@dataclass(frozen=True)
class SameBits(Expectation):
    """The same call gives the same bits in every tensor, so many times over."""

    times: int = 2

    @property
    def finds(self) -> tuple[str, ...]:
        """Names of judgements, or kinds of failures."""
        return ("bits", "raised", "died", "timeout")

    def judge(self, run: Run) -> Iterator[Judgement | Failure]:
        """A failure at the first entry that differs."""
        for _ in range(self.times):
            again = run.again()
            if again.error is not None:
                yield Failure(again.ending, "", f"run again, {again.error}")
                return
            for name, one in run.tensors.items():
                other = again.tensors.get(name)
                if other is None or other.shape != one.shape:
                    what = "not at all" if other is None else f"in shape {list(other.shape)}"
                    text = f"the same call gave {name} in shape {list(one.shape)} and then {what}"
                    yield Failure("bits", name, text)
                    return
                # Zeros of both signs are told apart.
                same = (one == other) & (np.signbit(one) == np.signbit(other))
                differs = ~(same | (np.isnan(one) & np.isnan(other)))
                if differs.any():
                    at = tuple(int(n) for n in np.argwhere(differs)[0])
                    values = f"{float(one[at])!r} and then {float(other[at])!r}"
                    count = int(differs.sum())
                    yield Failure(
                        "bits", name, f"the same call gave {name}{list(at)} = {values} ({count} entries differ)"
                    )
                    return

    def source(self, shown: Judgement | Failure, trial: Trial) -> list[str]:
        """Runs it again and compares."""
        return [
            "def bits(tensors):",
            "    found = {n: t for n, t in tensors.items() if t is not None}",
            "    return {n: (tuple(t.shape), [float(x).hex() for x in t.flatten()]) for n, t in found.items()}",
            "",
            f"for _ in range({self.times}):",
            "    assert bits(run()) == bits(seen), 'other bits'",
        ]


@recorded
@dataclass(frozen=True)
class InputsUnchanged(Expectation):
    """The subject overwrites none of its inputs, nor the memory around them."""

    @property
    def finds(self) -> tuple[str, ...]:
        """Names of judgements, or kinds of failures."""
        return ("input",)

    def judge(self, run: Run) -> Iterator[Judgement | Failure]:
        """A failure naming the inputs."""
        if run.seen.changed_inputs:
            names = ", ".join(run.seen.changed_inputs)
            yield Failure("input", run.seen.changed_inputs[0], f"the subject overwrote its input {names}")

    def source(self, shown: Judgement | Failure, trial: Trial) -> list[str]:
        """What the run itself noticed."""
        return ["assert not seen['overwritten'], f\"overwritten: {seen['overwritten']}\""]


@recorded
@dataclass(frozen=True)
class ReturnedAs(Expectation):
    """Tensors come back in the inputs' dtype and on their device; the LSE in any dtype."""

    @property
    def finds(self) -> tuple[str, ...]:
        """Names of judgements, or kinds of failures."""
        return ("type",)

    def judge(self, run: Run) -> Iterator[Judgement | Failure]:
        """A failure at the first tensor that does not."""
        # A tensor says the kind of its device, and not which of several.
        dtype, device = run.trial.call.dtype, run.held.device.partition(":")[0]
        for name in expected_tensors(run.trial.call, run.held.claims):
            found, place = run.seen.dtypes.get(name), run.seen.devices.get(name, device)
            if name != "lse" and found != dtype:
                yield Failure("type", name, f"{name} has dtype {found}: expected {dtype}")
                return
            if place != device:
                yield Failure("type", name, f"{name} is on {place}: expected {device}")
                return

    def source(self, shown: Judgement | Failure, trial: Trial) -> list[str]:
        """What the run told of the tensor that failed."""
        name = shown.tensor
        kind = "" if name == "lse" else f'kind == "{trial.call.dtype}" and '
        return [
            f"kind, is_beside_inputs = seen['types'][{name!r}]",
            f"assert {kind}is_beside_inputs, (kind, is_beside_inputs)",
        ]


@recorded
@dataclass(frozen=True)
class Refused(Expectation):
    """A call without meaning raises an exception; `what` says what is wrong with it."""

    what: str
    refusal: ClassVar[bool] = True

    @property
    def finds(self) -> tuple[str, ...]:
        """Names of judgements, or kinds of failures."""
        return ("accepted", "died", "timeout")

    def judge(self, run: Run) -> Iterator[Judgement | Failure]:
        """A failure where an answer came back, or the process did not survive."""
        if run.seen.error is None:
            yield Failure("accepted", "", f"{self.what}: an answer came back, expected an exception")
        elif run.seen.ending != "raised":
            yield Failure(run.seen.ending, "", f"{self.what}: {run.seen.error}, expected an exception")

    def source(self, shown: Judgement | Failure, trial: Trial) -> list[str]:
        """Runs it, and fails where an answer comes back."""
        message = f"{self.what}: an answer came back, expected an exception"
        return [
            "try:",
            "    run()",
            "except Exception as error:",
            '    print(f"refused: {error}")',
            "else:",
            f"    raise AssertionError({message!r})",
        ]
