"""Known divergences: live ones waive, expired and stale ones only warn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.certify import fakes
from tests.certify.conftest import Certify
from tests.certify.fakes import Fake, parts

RUN = ("run", "fake", "--examples", "4", "--dtype", "float32", "--known-divergences", "known.toml")


def entry(**changes: str) -> str:
    fields = {
        "property": "'*'",
        "subject": "'fake'",
        "dtype": "'float*'",
        "owner": "'kernel team'",
        "reason": "'fixed in the next release'",
        "expires": "2999-01-31",
        **changes,
    }
    return "[[divergence]]\n" + "".join(f"{k} = {v}\n" for k, v in fields.items() if v)


def test_a_live_entry_waives_and_is_listed(certify: Certify, tmp_path: Path) -> None:
    (tmp_path / "known.toml").write_text(entry())
    result = certify(*RUN, parts=parts(Fake(change=fakes.raising)))
    assert result.exit_code == 0, result.output
    assert result.output.endswith("VERDICT CERTIFIED WITH WAIVERS fake exit=0\n")
    assert "waived: output (float32), owner kernel team, until 2999-01-31: fixed in the next release" in result.output
    certificate = json.loads((tmp_path / "cert/fake/certificate.json").read_text())
    assert [row["state"] for row in certificate["properties"]] == ["waived", "waived"]
    assert certificate["waivers"][0]["counterexample"] == certificate["properties"][0]["counterexample"]


def test_an_expired_entry_waives_nothing(certify: Certify, tmp_path: Path) -> None:
    (tmp_path / "known.toml").write_text(entry(expires="2020-01-01"))
    result = certify(*RUN, parts=parts(Fake(change=fakes.raising)))
    assert result.exit_code == 1, result.output
    assert "known divergence expired on 2020-01-01 and waives nothing" in result.output


def test_an_entry_for_another_property_waives_only_that(certify: Certify, tmp_path: Path) -> None:
    (tmp_path / "known.toml").write_text(entry(property="'calm'"))
    result = certify(*RUN, parts=parts(Fake(change=fakes.raising)))
    assert result.exit_code == 1, result.output
    assert "refuted output (float32)" in result.output


def test_a_stale_entry_warns(certify: Certify, tmp_path: Path) -> None:
    (tmp_path / "known.toml").write_text(entry())
    result = certify(*RUN, parts=parts(Fake()))
    assert result.exit_code == 0
    assert result.output.endswith("VERDICT CERTIFIED fake exit=0\n")
    assert "known divergence is stale, nothing it lists was refuted" in result.output


def test_an_entry_about_another_subject_is_silent(certify: Certify, tmp_path: Path) -> None:
    (tmp_path / "known.toml").write_text(entry(subject="'other'"))
    result = certify(*RUN, parts=parts(Fake()))
    assert "divergence" not in result.output


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (entry(expires=""), "divergence 1: expires = None: expected a date"),
        (entry(expires="'2999-01-31'"), "expires = '2999-01-31': expected a date such as 2027-01-31, without quotes"),
        (entry(reason="''"), "reason = '': expected a text"),
        (entry(ownr="'me'"), "unknown key 'ownr' (did you mean owner?)"),
        ("[waiver]\n", "'waiver': expected [[divergence]] tables and nothing else"),
        ("= 1", "not valid TOML"),
    ],
)
def test_the_file_is_checked(certify: Certify, tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "known.toml").write_text(text)
    result = certify(*RUN, parts=parts(Fake()))
    assert result.exit_code == 2, result.output
    assert expected in result.stderr
