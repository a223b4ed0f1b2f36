"""Every property refutes a planted bug, and the snippet that it writes is the run: it finds the record's number.

A snippet fails in a fresh interpreter in another folder while the bug is there, and passes when the same file is
mended. `certify replay` and `certify explain` say what the record says.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from attnspec.certify.evidence.counterexample import CounterExample
from attnspec.certify.trials import registered
from tests.snippets.catalogue import PLANTED, of_property
from tests.snippets.planted import CLAIMING, KERNELS, SUBJECT, UNDEFINED, Planted
from tests.snippets.runs import Ran, campaign, certify, here, printed_number, python

pytest.importorskip("torch")

Campaigns = Callable[[Planted], Ran]
Done = CompletedProcess[str]
PAIRS = [(planted, prop_id) for planted in PLANTED for prop_id in planted.refuted_by]
# Where a property refutes several, the others are run here in this interpreter.
MORE = [(p, prop_id) for p, prop_id in PAIRS if p is not of_property(prop_id)[0] and not p.isolated]


def _name(value: object) -> str:
    return value.name.replace(" ", "-") if isinstance(value, Planted) else str(value)


@pytest.fixture(scope="module")
def campaigns(tmp_path_factory: pytest.TempPathFactory) -> Campaigns:
    """Campaigns on wrong kernels, each run once."""
    ran: dict[str, Ran] = {}

    def of(planted: Planted) -> Ran:
        if planted.name not in ran:
            ran[planted.name] = campaign(planted, tmp_path_factory.mktemp("kernel"))
        return ran[planted.name]

    return of


@pytest.mark.parametrize("prop_id", registered())
def test_every_property_refutes_a_planted_bug_and_its_snippet_is_the_run(
    prop_id: str, campaigns: Campaigns, tmp_path: Path
) -> None:
    assert of_property(prop_id), f"add a wrong kernel that {prop_id} refutes to tests/snippets/planted.py"
    ran = campaigns(of_property(prop_id)[0])
    the_snippet_is_the_run(ran, prop_id, python(tmp_path, ran.snippet(prop_id)))
    the_commands_say_the_same(ran, ran.records[prop_id])
    with ran.mended():
        it_holds_now(ran, ran.records[prop_id])
        the_snippet_passes(here(tmp_path, ran.snippet(prop_id)))


@pytest.mark.parametrize(("planted", "prop_id"), MORE, ids=_name)
def test_further_ways_to_fail(planted: Planted, prop_id: str, campaigns: Campaigns, tmp_path: Path) -> None:
    ran = campaigns(planted)
    the_snippet_is_the_run(ran, prop_id, here(tmp_path, ran.snippet(prop_id)))
    the_commands_say_the_same(ran, ran.records[prop_id])
    with ran.mended():
        it_holds_now(ran, ran.records[prop_id])
        the_snippet_passes(here(tmp_path, ran.snippet(prop_id)))


@pytest.mark.slow
@pytest.mark.parametrize(("planted", "prop_id"), PAIRS, ids=_name)
def test_both_sides_in_fresh_interpreters(planted: Planted, prop_id: str, campaigns: Campaigns, tmp_path: Path) -> None:
    ran = campaigns(planted)
    the_snippet_is_the_run(ran, prop_id, python(tmp_path, ran.snippet(prop_id)))
    the_commands_say_the_same(ran, ran.records[prop_id])
    with ran.mended():
        it_holds_now(ran, ran.records[prop_id])
        the_snippet_passes(python(tmp_path, ran.snippet(prop_id)))


def the_snippet_is_the_run(ran: Ran, prop_id: str, done: Done) -> None:
    """The campaign refuted the property, and the snippet fails by what the record holds."""
    assert ran.result.exit_code == 1, ran.result.output
    record = ran.records[prop_id]
    returncode, stdout, stderr = done.returncode, done.stdout, done.stderr
    last = (stderr.strip().splitlines() or [""])[-1]
    if not record.failures:
        worst = record.observed[0]
        place, got = printed_number(stdout)
        assert place == f"{worst.tensor}[{', '.join(map(str, worst.index))}]"
        assert got.hex() == worst.observed.hex
        assert (returncode, last) == (1, "AssertionError"), stderr
        return
    failure = record.failures[0]
    if failure.kind == "died":
        assert returncode < 0, stderr
    elif failure.kind == "timeout":
        assert (returncode, stderr.splitlines()[0].partition(" ")[0]) == (1, "Timeout"), stderr
    elif failure.kind == "raised":
        # What the kernel raised, or an assertion that says so where a Subject returned it.
        assert returncode == 1
        assert failure.text.endswith(last.removeprefix("AssertionError: ")), stderr
    else:
        assert (returncode, last.partition(":")[0]) == (1, "AssertionError"), stderr


def the_commands_say_the_same(ran: Ran, record: CounterExample) -> None:
    """Replay and explain fail with the numbers, or the words, of the record."""
    replayed = certify(ran.folder, "replay", record.id, isolated=ran.planted.isolated)
    explained = certify(ran.folder, "explain", record.id, isolated=ran.planted.isolated)
    assert (replayed.exit_code, explained.exit_code) == (1, 1), replayed.output + explained.output
    for text in (replayed.output, explained.output):
        for failure in record.failures:
            # What changes from run to run comes in other numbers.
            assert failure.text in text or failure.kind == "bits"
        for seen in record.observed if not record.failures else ():
            if not seen.inside:
                assert f"{seen.tensor}[{', '.join(map(str, seen.index))}] = {seen.observed.decimal}" in text
                assert f"error    {_error_of(replayed.output, seen.tensor)}" in text
    for seen in record.observed if not record.failures else ():
        assert f"tensor   {seen.tensor} {'inside' if seen.inside else 'OUTSIDE'}" in explained.output


def _error_of(text: str, tensor: str) -> str:
    """The error of a tensor, as a report of a refutation has it."""
    lines = text.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"got      {tensor}["))
    return next(line for line in lines[start:] if line.startswith("error    ")).removeprefix("error    ")


def it_holds_now(ran: Ran, record: CounterExample) -> None:
    """Replay and explain pass on the mended kernel."""
    replayed = certify(ran.folder, "replay", record.id, isolated=ran.planted.isolated)
    assert replayed.exit_code == 0, replayed.output
    explained = certify(ran.folder, "explain", record.id, isolated=ran.planted.isolated)
    assert explained.exit_code == 0, explained.output


def the_snippet_passes(done: Done) -> None:
    """The program came to its end."""
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_record_is_shown_before_its_property_is_loaded(campaigns: Campaigns, tmp_path: Path) -> None:
    ran = campaigns(next(p for p in PLANTED if p.name == "drops too often"))
    (certificate,) = ran.folder.glob("cert/*")
    done = python(tmp_path, "-m", "attnspec.certify", "show", certificate)
    assert done.returncode == 1, done.stderr
    assert ran.records["dropout-own-mask"].failures[0].text in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [CLAIMING, UNDEFINED, SUBJECT])
def test_the_right_kernels_are_certified(kernel: str, tmp_path: Path) -> None:
    right = Planted("nothing", kernel, (), ())
    right.write(tmp_path)
    done = certify(tmp_path, "run", kernel, "--profile", "smoke", "--no-isolate", "--dtype", "float32")
    assert done.exit_code == 0, done.output


def test_each_bug_is_a_change_of_one_of_the_kernels_here() -> None:
    assert len({planted.name for planted in PLANTED}) == len(PLANTED)
    for planted in PLANTED:
        assert planted.source() != (KERNELS / planted.file).read_text(encoding="utf-8")
        compile(planted.source(), planted.name, "exec")
