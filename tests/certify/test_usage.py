"""Usage errors: one clear line on stderr that names the value, what was expected, and the mend; exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnspec.certify.campaign.parts import default_parts
from tests.certify.conftest import Certify
from tests.certify.fakes import Fake, parts

CASES = {
    "unknown subject": (["run", "fak"], "unknown subject 'fak'"),
    "unknown property": (
        ["run", "fake", "--only", "outptu"],
        "--only 'outptu': unknown property (did you mean output?)",
    ),
    "dtype": (["run", "fake", "--dtype", "flaot32"], "fake does not claim it (did you mean float32"),
    "device": (["run", "fake", "--device", "tpu"], "--device tpu: fake does not claim it: expected one of cpu"),
    "profile": (["run", "fake", "--profile", "huge"], "--profile 'huge': expected one of smoke, pr, release"),
    "examples": (["run", "fake", "--examples", "0"], "--examples 0: expected a positive number"),
    "time limit": (["run", "fake", "--time-limit", "-1"], "--time-limit -1: expected a positive number of seconds"),
    "ledger name": (["run", "fake", "--ledger", "flsh"], "unknown ledger 'flsh' (did you mean flash"),
    "ledger file": (["run", "fake", "--ledger", "absent.toml"], "--ledger absent.toml: cannot read it: No such file"),
    "divergences": (["run", "fake", "--known-divergences", "absent.toml"], "cannot read it: No such file"),
    "out": (["run", "fake", "--out", "/proc/nowhere"], "--out /proc/nowhere: cannot write there"),
    "replay of an unknown id": (["replay", "0123456789"], "no counter-example '0123456789' under cert"),
    "replay of an absent file": (["replay", "x/y.json"], "x/y.json: no such file"),
    "show of nothing": (["show", "nowhere"], "cannot read a certificate: No such file"),
}


@pytest.mark.parametrize("name", CASES)
def test_usage_is_one_line_and_exit_2(certify: Certify, name: str) -> None:
    arguments, expected = CASES[name]
    result = certify(*arguments, parts=parts(Fake()))
    assert result.exit_code == 2, result.output
    assert expected in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    assert "Traceback" not in result.output


def test_every_request_is_understood_before_the_first_one_runs(certify: Certify) -> None:
    good = Fake()
    result = certify("run", "fake", "fak", parts=parts(good))
    assert result.exit_code == 2
    assert good.calls == 0


LEDGERS = {
    "not toml": ("[float32", "not valid toml"),
    "no table": ("name = 'x'", "expected one table a dtype"),
    "other dtype": ("[float16]", "no table [float32]: it has float16"),
    "unknown field": ("[float32]\nstors = []", "unknown ledger field 'stors' (did you mean stores"),
    "unknown base": ("[float32]\nbase = 'none'", "base = 'none': expected one of math"),
    "bad stage": ("[float32]\nstores = ['all']", "unknown stage 'all'"),
    "bad format": ("[float32]\ncompute = 'float31'", "compute = 'float31'"),
    "bad number": ("[float32]\nexp_error = 'four'", "exp_error = 'four': expected a number"),
    "infinite": ("[float32]\nexp_error = inf", "exp_error = inf: expected a finite number"),
    "bad tile": ("[float32]\nkey_tile = 0", "key_tile = 0: expected a positive tile size"),
}


@pytest.mark.parametrize("name", LEDGERS)
def test_ledger_files_are_checked(certify: Certify, tmp_path: Path, name: str) -> None:
    text, expected = LEDGERS[name]
    (tmp_path / "ledger.toml").write_text(text)
    result = certify("run", "fake", "--dtype", "float32", "--ledger", "ledger.toml", parts=parts(Fake()))
    assert result.exit_code == 2, result.output
    assert expected in result.stderr


def test_a_ledger_file_is_what_the_subject_is_held_to(certify: Certify, tmp_path: Path) -> None:
    # Everything in double, and the output too: no float32 kernel can meet that.
    (tmp_path / "exact.toml").write_text("[float32]\nbase = 'math'\ncompute = 'float64'\nstores = []\n")
    options = ("run", "fake", "--dtype", "float32", "--examples", "30", "--only", "output")
    assert certify(*options, parts=parts(Fake())).exit_code == 0
    assert certify(*options, "--ledger", "exact.toml", parts=parts(Fake())).exit_code == 1


def test_debug_shows_where(certify: Certify, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNSPEC_DEBUG", "1")
    result = certify("run", "fak", parts=parts(Fake()))
    assert "certify: unknown subject" in result.stderr


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("numpy-referense", "did you mean numpy-reference"),
        ("no.such.module:attention", "importing 'no.such.module' failed with ModuleNotFoundError"),
        ("absent.py:attention", "there is no file 'absent.py'"),
    ],
)
def test_real_names_that_do_not_load(certify: Certify, spec: str, expected: str) -> None:
    result = certify("run", spec, "--no-isolate", parts=default_parts())
    assert result.exit_code == 2, result.output
    assert expected in result.stderr
