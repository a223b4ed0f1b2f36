"""How often are right kernels refuted? Right subjects on many drawn calls, every tensor judged.

    python bench/soundness.py [--calls 20000] [--seed 0] [--jobs 2] [--state FILE] [--subject NAME ...] [--dtype D ...]
    python bench/soundness.py --properties --calls 100000

Calls are shared out evenly over subjects and dtypes; call i of a pair is a pure function of (seed, i). Each is held to
the exact values; with --properties, to one property after the other, prepared and checked as a campaign does. A chunk
that --state already holds is not run again, so an interrupted run goes on where it stopped. Prints, for each subject
and dtype: calls, tensor checks, false alarms, undecided entries, share of tensors whose bound says nothing, and the
distribution of error ÷ bound. Exit code 1 when there was a false alarm.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import track

if TYPE_CHECKING:
    from attnspec.certify.trials import Held, Outcome

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # bench is not installed
SUBJECTS = ("numpy-reference", "torch-eager", "torch-sdpa:math", "torch-sdpa:flash")
DTYPES = ("float64", "float32", "bfloat16", "float16")
CHUNK = 50
CHUNK_KEY = ("what", "subject", "dtype", "seed", "start", "stop", "profile")
AGREEMENT, PROPERTIES = "agreement", "properties"
MEASURED = ("strategies", "pyspec", "certify")

Judge = Callable[[int], "tuple[str, Outcome]"]


def run_chunk(
    what: str, subject_name: str, dtype: str, seed: int, start: int, stop: int, profile: str
) -> dict[str, Any]:
    """Judge calls start..stop of one subject and dtype, by agreement or by the properties in turn."""
    import torch

    from attnspec.certify.subjects import load_subject
    from attnspec.certify.trials import Held
    from bench.checkout import commit

    torch.set_num_threads(1)
    subject = load_subject(subject_name)
    held = Held(subject, subject.ledger)
    found: dict[str, Any] = {
        "what": what, "subject": subject_name, "dtype": dtype, "seed": seed, "start": start, "stop": stop,
        "profile": profile, "calls": 0, "uncovered": 0, "vacuous": 0, "undecided": 0, "escalated": 0,
        "alarms": [], "ratios": [], "commit": commit(*MEASURED),
    }  # fmt: skip
    judge = (by_properties if what == PROPERTIES else by_agreement)(held, dtype, seed, profile)
    for index in range(start, stop):
        claim, outcome = judge(index)
        if outcome.skip is not None:
            found["uncovered"] += 1
            continue
        found["calls"] += 1
        found["vacuous"] += len(outcome.vacuous)
        for failure in outcome.failures:
            found["alarms"].append([index, f"{claim}: {failure.text}"])
        for judgement in outcome.judgements:
            found["undecided"] += judgement.undecided_count
            found["escalated"] += judgement.escalated_count
            found["ratios"].append([judgement.tensor, round(min(judgement.worst, 1e9), 6)])
            if judgement.outside:
                found["alarms"].append([index, f"{claim}, {judgement.tensor}: {judgement.worst:.4g} × the bound"])
    return found


def by_agreement(held: Held, dtype: str, seed: int, profile: str) -> Judge:
    """Every tensor of a call against its exact value."""
    from attnspec.certify.campaign.parts import features_of
    from attnspec.certify.trials import Trial, run_trial
    from attnspec.strategies import PROFILES, call_at

    features = features_of(held.claims, dtype)
    return lambda index: (
        AGREEMENT,
        run_trial(Trial(call_at(seed, index, PROFILES[profile], features)), held).outcome,
    )


def by_properties(held: Held, dtype: str, seed: int, profile: str) -> Judge:
    """A call to the property whose turn it is."""
    from attnspec.certify.campaign.parts import default_parts
    from attnspec.certify.trials import Outcome, check, registered
    from attnspec.certify.trials.outcome import no_such_call

    claims, call_at = held.claims, default_parts().call_at
    asked = [p for p in registered().values() if p.needs(claims) is None]

    def judge(index: int) -> tuple[str, Any]:
        prop = asked[index % len(asked)]
        call = prop.prepare(call_at(seed, index, profile, claims, dtype, prop.small))
        outcome = Outcome(skip=no_such_call("")) if call is None else check(prop, call, held).outcome
        return prop.id, outcome

    return judge


def known_chunks(state: Path | None) -> list[dict[str, Any]]:
    """Chunks that the state file holds; a last line cut short by an interrupt is dropped."""
    if state is None or not state.exists():
        return []
    rows = []
    for line in state.read_text().splitlines():
        try:
            rows.append({"what": AGREEMENT, **json.loads(line)})
        except json.JSONDecodeError:
            continue
    return rows


@dataclass(frozen=True)
class Options:
    """What the command line asks for."""

    calls: int
    seed: int
    jobs: int
    profile: str
    state: Path | None
    properties: bool
    as_is: bool
    write: bool
    subjects: tuple[str, ...]
    dtypes: tuple[str, ...]

    def chunks(self) -> list[tuple[str, str, str, int, int, int, str]]:
        """The arguments of every `run_chunk`, as in CHUNK_KEY."""
        what = PROPERTIES if self.properties else AGREEMENT
        each = -(-self.calls // (len(self.subjects) * len(self.dtypes)))
        return [
            (what, subject, dtype, self.seed, start, min(start + CHUNK, each), self.profile)
            for start in range(0, each, CHUNK)
            for subject in self.subjects
            for dtype in self.dtypes
        ]


@click.command(help=__doc__)
@click.option("--calls", default=20000, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--jobs", default=2, show_default=True)
@click.option("--profile", default="pr", show_default=True)
@click.option("--state", type=click.Path(dir_okay=False, path_type=Path), default=None)
@click.option("--properties", is_flag=True, help="Hold the calls to the properties in turn.")
@click.option("--as-is", is_flag=True, help="Run nothing: report all that --state holds.")
@click.option("--write", is_flag=True, help="Write docs/SOUNDNESS.md.")
@click.option("--subject", "subjects", multiple=True, default=SUBJECTS)
@click.option("--dtype", "dtypes", multiple=True, default=DTYPES)
def main(**given: Any) -> None:
    from bench.soundness_report import show, write_page

    asked = Options(**given)
    wanted = [] if asked.as_is else asked.chunks()
    done = {tuple(row[k] for k in CHUNK_KEY): row for row in known_chunks(asked.state)}
    results = list(done.values()) if asked.as_is else [done[w] for w in wanted if w in done]
    with ProcessPoolExecutor(asked.jobs) as pool:
        futures = [pool.submit(run_chunk, *w) for w in wanted if w not in done]
        for future in track(as_completed(futures), "judging", total=len(futures), console=Console(stderr=True)):
            results.append(future.result())
            if asked.state is not None:
                with asked.state.open("a") as file:
                    file.write(json.dumps(results[-1]) + "\n")
    if asked.write:
        write_page(results, ROOT / "docs" / "SOUNDNESS.md")
    sys.exit(1 if show(results) else 0)


if __name__ == "__main__":
    main()
