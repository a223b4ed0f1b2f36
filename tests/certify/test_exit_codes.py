"""What `certify run` tells the shell, one code after the other."""

from __future__ import annotations

import os
from dataclasses import replace

import msgspec
import pytest

from attnspec.certify.errors import ExitCode, worst_exit
from attnspec.certify.observation import Observation
from attnspec.pyspec import AttentionCall
from tests.certify import fakes
from tests.certify.conftest import Certify
from tests.certify.fakes import Fake, parts

RUN = ("run", "fake", "--examples", "4", "--dtype", "float32")


def last_line(output: str) -> str:
    return output.rstrip("\n").splitlines()[-1]


def test_certified_is_0(certify: Certify) -> None:
    result = certify(*RUN, parts=parts(Fake()))
    assert result.exit_code == 0, result.output
    assert last_line(result.output) == "VERDICT CERTIFIED fake exit=0"
    assert "certificate: cert/fake/certificate.json" in result.output


def test_refuted_is_1(certify: Certify) -> None:
    result = certify(*RUN, "--examples", "40", parts=parts(Fake(change=fakes.doubled_when_two_keys)))
    assert result.exit_code == 1, result.output
    assert last_line(result.output) == "VERDICT REFUTED fake exit=1"


def test_failed_self_check_is_3_and_names_what_was_missed(certify: Certify) -> None:
    result = certify(*RUN, parts=parts(Fake(), checked=fakes.FAILED))
    assert result.exit_code == 3, result.output
    assert "planted bugs not caught: flipped mask" in result.output
    assert last_line(result.output) == "VERDICT INCOMPLETE fake exit=3"


def test_a_check_that_raises_is_our_fault_and_not_the_subjects(certify: Certify) -> None:
    result = certify(*RUN, parts=parts(Fake(), properties=(fakes.OUTPUT, fakes.FAULTY)))
    assert result.exit_code == 3, result.output
    assert "ZeroDivisionError: in the check" in result.output
    assert "this package failed while checking faulty (float32)" in result.output
    assert "Traceback" not in result.output


def test_a_check_that_refutes_the_reference_as_well_is_our_fault(certify: Certify) -> None:
    wrong = Fake(change=fakes.doubled_when_two_keys)
    result = certify(*RUN, "--examples", "40", parts=parts(wrong, reference=wrong))
    assert result.exit_code == 3, result.output
    assert "the reference is refuted as well" in result.output


def test_missing_device_is_4_and_says_why(certify: Certify) -> None:
    result = certify(*RUN, "--device", "absent", parts=parts(Fake()))
    assert result.exit_code == 4, result.output
    assert "device 'absent' is not there" in result.output
    assert last_line(result.output) == "VERDICT INCOMPLETE fake exit=4"


def test_out_of_time_is_4(certify: Certify) -> None:
    result = certify(*RUN, "--time-limit", "1e-6", parts=parts(Fake()))
    assert result.exit_code == 4, result.output
    assert "out of time before the last case of output (float32)" in result.output


def test_a_refutation_outweighs_being_out_of_time(certify: Certify) -> None:
    class Late(Fake):
        def run(self, call: AttentionCall, raw: object = None) -> Observation:
            return Observation(error="RuntimeError: no")

    assert certify(*RUN, parts=parts(Late())).exit_code == 1


def test_claims_that_could_not_be_tested_are_incomplete_never_held(certify: Certify) -> None:
    result = certify(*RUN, parts=parts(Fake(), properties=(fakes.OUTPUT, fakes.VACUOUS)))
    assert result.exit_code == 4, result.output
    assert "no case could be tested of vacuous (float32)" in result.output
    assert "N vacuous (float32)  0 cases" in result.output


def test_claims_that_stay_undecided_are_incomplete_never_held(certify: Certify) -> None:
    result = certify(*RUN, parts=parts(Fake(), properties=(fakes.OUTPUT, fakes.UNDECIDED)))
    assert result.exit_code == 4, result.output
    assert "too many cases that no precision decides of undecided (float32)" in result.output
    assert "D undecided (float32)  0 cases, 32 undecided" in result.output


def test_claims_that_speak_of_no_call_drawn_are_listed_and_stand_in_nobodys_way(certify: Certify) -> None:
    result = certify(*RUN, parts=parts(Fake(), properties=(fakes.OUTPUT, fakes.SKIPPED)))
    assert result.exit_code == 0, result.output
    assert "C skipped (float32)  0 cases, 32 not of this claim" in result.output
    assert "1 held, 1 not covered" in result.output


def test_claims_outside_the_subjects_own_claim_are_listed_and_not_held(certify: Certify) -> None:
    result = certify(*RUN, parts=parts(Fake(), properties=(fakes.OUTPUT, fakes.OUTSIDE)))
    assert result.exit_code == 0, result.output
    assert "C outside (float32)  0 cases  a softcap not claimed" in result.output
    assert "1 held, 1 not covered" in result.output


@pytest.mark.parametrize("only", ["no-such-*", "outside"])
def test_nothing_selected_is_5(certify: Certify, only: str) -> None:
    result = certify(*RUN, "--only", only, parts=parts(Fake(), properties=(fakes.OUTPUT, fakes.OUTSIDE)))
    assert result.exit_code == 5, result.output


def test_a_verdict_that_depends_on_the_process_is_4(certify: Certify) -> None:
    wrong = Fake(change=fakes.raising)
    result = certify(*RUN, parts=parts(Fake(), fresh=lambda spec, device, timeout: wrong))
    assert result.exit_code == 4, result.output
    assert "not reproducible in a fresh process: output (float32), calm (float32)" in result.output
    assert "a fresh process says refuted" in result.output


def test_other_bits_with_the_same_verdict_are_counted_by_the_audit(certify: Certify) -> None:
    def nudged(call: AttentionCall, seen: Observation) -> Observation:
        return replace(seen, tensors={n: t * (1 + 2**-40) for n, t in seen.tensors.items()})

    result = certify(*RUN, parts=parts(Fake(), fresh=lambda spec, device, timeout: Fake(change=nudged)))
    assert result.exit_code == 0, result.output
    assert "audit: 2 re-run in a fresh process, 2 differ" in result.output
    assert "same verdict, different bits" in result.output


def test_an_audit_that_cannot_start_is_incomplete(certify: Certify) -> None:
    def fresh(spec: str, device: str, timeout: float) -> Fake:
        from attnspec.certify.errors import UsageError

        raise UsageError("cannot be loaded a second time")

    result = certify(*RUN, parts=parts(Fake(), fresh=fresh))
    assert result.exit_code == 4, result.output
    assert "audit not possible: cannot be loaded a second time" in result.output


def test_several_subjects_give_the_worst_code_and_a_folder_each(certify: Certify) -> None:
    world = parts(Fake(), Fake("bad:one", change=fakes.raising))
    result = certify("run", "bad:one", "fake", "--examples", "2", "--dtype", "float32", "--out", "both", parts=world)
    assert result.exit_code == 1, result.output
    assert os.path.isfile("both/bad-one/certificate.json")
    assert os.path.isfile("both/fake/certificate.json")
    verdicts = [line for line in result.output.splitlines() if line.startswith("VERDICT")]
    assert verdicts == ["VERDICT REFUTED bad:one exit=1", "VERDICT CERTIFIED fake exit=0"]


def test_exit_codes_are_ordered_by_what_they_tell() -> None:
    assert worst_exit([0, 5, 4]) == ExitCode.INCOMPLETE
    assert worst_exit([4, 1, 0]) == ExitCode.REFUTED
    assert worst_exit([1, 3]) == ExitCode.OWN_FAULT
    assert worst_exit([]) == ExitCode.NOTHING_SELECTED


def test_quiet_leaves_the_verdict(certify: Certify) -> None:
    result = certify(*RUN, "--quiet", parts=parts(Fake()))
    assert result.output == "VERDICT CERTIFIED fake exit=0\n"


def test_json_prints_only_json_lines(certify: Certify) -> None:
    result = certify(*RUN, "--json", parts=parts(Fake()))
    events = [msgspec.json.decode(line) for line in result.output.splitlines()]
    assert events[0]["event"] == "phase-started"
    assert events[-1]["event"] == "verdict-reached"
    assert events[-1]["certificate"]["verdict"] == "CERTIFIED"
