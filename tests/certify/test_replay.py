"""Counter-examples: reduced, written, found again by id, and replayed without running any stored code."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from attnspec.certify.errors import UsageError
from attnspec.certify.evidence.certificate import ProofRecord
from attnspec.certify.evidence.counterexample import CounterExample, read_counterexample, write_counterexample
from attnspec.certify.evidence.report.text import refutation
from attnspec.pyspec.calls.fingerprint import fingerprint
from tests.certify import fakes
from tests.certify.conftest import Certify
from tests.certify.fakes import Fake, parts

RUN = ("run", "fake", "--examples", "40", "--dtype", "float32", "--only", "output")


@pytest.fixture
def found(certify: Certify, tmp_path: Path) -> CounterExample:
    """The counter-example of a kernel that doubles its output from two keys on."""
    result = certify(*RUN, parts=parts(Fake(change=fakes.doubled_when_two_keys)))
    assert result.exit_code == 1, result.output
    (file,) = (tmp_path / "cert/fake/counterexamples").glob("*.json")
    return read_counterexample(file)


def test_the_call_is_the_smallest_that_fails(found: CounterExample) -> None:
    call = found.failing_trial().call
    assert fingerprint(call) == fingerprint(found.base_call())
    assert call.axes.keys == 2
    assert call.query.size == 1
    assert int((call.value != 0).sum()) == 1
    assert not call.query.any()
    assert call.grad_output is None
    assert found.reduced


def test_replay_by_id_by_its_start_and_by_file(certify: Certify, found: CounterExample) -> None:
    wrong = parts(Fake(change=fakes.doubled_when_two_keys))
    for name in (found.id, found.id[:5], f"cert/fake/counterexamples/{found.id}.json"):
        result = certify("replay", name, parts=wrong)
        assert result.exit_code == 1, result.output
        assert f"certify replay {found.id}" in result.output
    assert certify("replay", found.id, "--out", "elsewhere", parts=wrong).exit_code == 2


def test_replay_of_a_mended_kernel_is_0(certify: Certify, found: CounterExample) -> None:
    result = certify("replay", found.id, parts=parts(Fake()))
    assert result.exit_code == 0, result.output
    assert result.output == f"{found.id} holds now: output of fake on cpu, float32\n"


def test_the_next_run_begins_with_it_and_says_when_it_holds(certify: Certify, found: CounterExample) -> None:
    wrong = Fake(change=fakes.doubled_when_two_keys)
    again = certify(*RUN, parts=parts(wrong))
    assert again.exit_code == 1
    assert f"stored counter-example {found.id} still refutes output" in again.output
    # Once for the stored call, once for the audit of it: nothing was searched.
    assert wrong.calls == 2
    mended = certify(*RUN, parts=parts(Fake()))
    assert mended.exit_code == 0, mended.output
    assert f"stored counter-examples that hold now: {found.id}" in mended.output


def test_order_of_a_refutation(found: CounterExample) -> None:
    text = refutation(found, fakes.PROOFS)
    heads = ("REFUTED ", "subject ", "call ", "got ", "exact ", "allowed ", "error ", "theorem ", "snippet", "certify")
    lines = text.splitlines()
    places = [next(i for i, line in enumerate(lines) if line.startswith(head)) for head in heads]
    assert places == sorted(places)
    assert "hex 0x3f800000" in text or "hex 0x00000000" in text
    assert found.snippet.rstrip() in text
    assert "forward_over_duals, not compiled here" in text
    assert lines[-1] == f"certify replay {found.id}"


def test_the_snippet_stands_beside_the_record(
    found: CounterExample, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (tmp_path / f"cert/fake/counterexamples/{found.id}.py").read_text()
    assert text.startswith(f"# -*- coding: utf-8 -*-\n# Counter-example {found.id} to output: ")
    assert text.endswith(found.snippet)
    # The program of the fake is that of the right kernel: there it says what is exact and allowed, and passes.
    exec(compile(text, "snippet", "exec"), {})
    (seen,) = found.observed
    low, high = (float.fromhex(x.hex) for x in (seen.exact_lower, seen.exact_upper))
    printed = capsys.readouterr().out
    assert printed.startswith("output[0, 0, 0, ")
    assert f", exact {low!r} to {high!r}, allowed " in printed
    assert text.splitlines()[-1].startswith("assert ")


def test_numbers_are_stored_twice_and_agree(found: CounterExample) -> None:
    (seen,) = found.observed
    for number in (seen.observed, seen.exact_lower, seen.exact_upper, seen.bound):
        assert float(number.decimal) == float.fromhex(number.hex)


def test_records_that_are_not_counter_examples(certify: Certify, found: CounterExample, tmp_path: Path) -> None:
    file = tmp_path / f"cert/fake/counterexamples/{found.id}.json"
    data = json.loads(file.read_text())
    trial, call = data["trial"], data["trial"]["call"]["call"]

    def with_call(**fields: object) -> str:
        return json.dumps({**data, "trial": {**trial, "call": {"call": {**call, **fields}}}})

    broken = {
        "not json": "{",
        "no format": json.dumps({}),
        "other format": json.dumps({**data, "format": "attnspec.counterexample/9"}),
        "extra": json.dumps({**data, "code": "import os"}),
        "older format": json.dumps({**data, "format": "attnspec.counterexample/1"}),
        "bad call": with_call(dtype="float31"),
        "bad word": with_call(query={**call["query"], "words": "zz"}),
        "no call": json.dumps({**data, "trial": {}}),
        "bad trial": json.dumps({**data, "trial": {**trial, "code": "import os"}}),
        "bad expectation": json.dumps({**data, "trial": {**trial, "expect": [{"expect": "Popen", "args": ["ls"]}]}}),
        "bad ledger": json.dumps({**data, "ledger": {"name": "x"}}),
        "other property": json.dumps({**data, "property": "gone"}),
    }
    for name, text in broken.items():
        (tmp_path / "bad.json").write_text(text)
        result = certify("replay", "bad.json", parts=parts(Fake()))
        assert result.exit_code == 2, (name, result.output)
        assert len(result.stderr.strip().splitlines()) == 1, (name, result.stderr)


def test_an_id_that_is_no_hash_never_becomes_a_path(found: CounterExample, tmp_path: Path) -> None:
    evil = msgspec.structs.replace(found, id="../../evil")
    path = write_counterexample(found, tmp_path / "kept")
    path.write_bytes(msgspec.json.encode(evil))
    with pytest.raises(UsageError, match="expected the hexadecimal hash"):
        read_counterexample(path)


def test_a_file_that_is_no_counter_example_is_warned_of_and_passed_over(certify: Certify, tmp_path: Path) -> None:
    folder = tmp_path / "cert/fake/counterexamples"
    folder.mkdir(parents=True)
    (folder / "notes.json").write_text("[]")
    result = certify(*RUN, parts=parts(Fake()))
    assert result.exit_code == 0, result.output
    assert "notes.json: not a counter-example" in result.output


def test_replay_holds_the_subject_to_the_stored_ledger(certify: Certify, found: CounterExample, tmp_path: Path) -> None:
    assert found.held_to().name == "float64-inside"
    assert found.held_to().storage == "float32"


def test_a_folder_of_ones_own_is_named_in_the_command(certify: Certify) -> None:
    wrong = parts(Fake(change=fakes.doubled_when_two_keys))
    result = certify(*RUN, "--out", "my evidence", parts=wrong)
    (line,) = [text for text in result.output.splitlines() if text.startswith("certify replay")]
    assert line.endswith(" --out 'my evidence'")
    assert certify("replay", line.split()[2], "--out", "my evidence", parts=wrong).exit_code == 1


def test_proofs_that_are_not_current_stop_a_run_but_not_a_replay(certify: Certify, found: CounterExample) -> None:
    def stale() -> ProofRecord:
        raise UsageError("spec/ has changed since its proofs were compiled: run `make proofs`")

    world = replace(parts(Fake(change=fakes.doubled_when_two_keys)), proofs=stale)
    result = certify(*RUN, parts=world)
    assert result.exit_code == 2
    assert result.stderr == "certify: spec/ has changed since its proofs were compiled: run `make proofs`\n"
    assert certify("replay", found.id, parts=world).exit_code == 1
