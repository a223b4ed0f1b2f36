"""The certificate and its reports: against the published schema, without NaN, the same twice, and escaped."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest

from attnspec.certify.errors import UsageError
from attnspec.certify.evidence.certificate import (
    LETTERS,
    MEANINGS,
    Certificate,
    State,
    read_certificate,
    schema,
    to_json,
)
from attnspec.certify.evidence.report.summary import STYLES
from tests.certify import fakes
from tests.certify.conftest import Certify
from tests.certify.fakes import Fake, parts

RUN = ("run", "fake", "--examples", "12")


def forbidden(constant: str) -> None:
    raise AssertionError(f"{constant} in a JSON file")


def strict(text: str) -> Any:
    return json.loads(text, parse_constant=forbidden)


@pytest.fixture(params=["right", "doubled", "raising", "nan", "open", "no self-check", "absent"])
def certified(request: pytest.FixtureRequest, certify: Certify, tmp_path: Path) -> Path:
    """Evidence folders of every kind of verdict."""
    changes = {"doubled": fakes.doubled_when_two_keys, "raising": fakes.raising, "nan": fakes.not_a_number}
    fake = Fake(change=changes[request.param]) if request.param in changes else Fake()
    checked = fakes.FAILED if request.param == "no self-check" else fakes.CHECKED
    untested = (fakes.VACUOUS, fakes.UNDECIDED) if request.param == "open" else (fakes.SKIPPED, fakes.OUTSIDE)
    properties = (fakes.OUTPUT, fakes.CALM, *untested)
    device = ("--device", "absent") if request.param == "absent" else ()
    certify(*RUN, *device, parts=parts(fake, checked=checked, properties=properties))
    return tmp_path / "cert/fake"


def test_the_published_schema_is_the_generated_one() -> None:
    published = (
        files("attnspec.certify").joinpath("evidence/schema/certificate.schema.json").read_text(encoding="utf-8")
    )
    assert json.loads(published) == schema(), "regenerate it: python -m attnspec.certify.evidence.certificate"


def test_every_certificate_meets_the_schema_and_holds_no_nan(certified: Path) -> None:
    certificate = strict((certified / "certificate.json").read_text())
    jsonschema.validate(certificate, schema(), cls=jsonschema.Draft202012Validator)


def test_reading_gives_back_what_was_written(certified: Path) -> None:
    certificate = read_certificate(certified)
    assert to_json(certificate) == (certified / "certificate.json").read_text()


def test_the_schema_refuses_a_certificate_with_a_wrong_state(certified: Path) -> None:
    certificate = strict((certified / "certificate.json").read_text())
    certificate["verdict"] = "PASSED"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(certificate, schema(), cls=jsonschema.Draft202012Validator)


def test_events_and_counter_examples_are_strict_json(certified: Path) -> None:
    for line in (certified / "events.jsonl").read_text().splitlines():
        strict(line)
    for file in certified.glob("counterexamples/*.json"):
        strict(file.read_text())


class Tags(HTMLParser):
    """Collects the tags of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.add(tag)
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_well_formed_and_escapes_what_came_from_outside(certified: Path) -> None:
    page = (certified / "report.html").read_text()
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert not tags.seen & {"script", "b", "link", "img", "iframe"}
    assert "http:" not in page
    assert "https:" not in page
    assert "url(" not in page
    certificate = read_certificate(certified)
    assert certificate.verdict in page
    if certificate.subject.identity:
        assert "&lt;b&gt;bold&lt;/b&gt;" in page


def test_what_a_kernel_raised_is_escaped(certify: Certify, tmp_path: Path) -> None:
    certify(*RUN, parts=parts(Fake(change=fakes.raising)))
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in (tmp_path / "cert/fake/report.html").read_text()
    assert "<script>" not in (tmp_path / "cert/fake/summary.md").read_text().split("## output")[0]


def test_junit_counts_what_was_not_tested_as_skipped(certified: Path) -> None:
    certificate = read_certificate(certified)
    suite = ET.parse(certified / "junit.xml").getroot().find("testsuite")
    assert suite is not None
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert int(suite.attrib[attribute]) == len(suite.findall(f"testcase/{tag}"))
    passed = [case.attrib["name"] for case in suite.findall("testcase") if len(case) == 0]
    assert passed == [f"{row.id}[{row.dtype}]" for row in certificate.properties if row.state == "held"]


def test_every_state_has_a_letter_a_meaning_and_a_style() -> None:
    states = set(get_args(State))
    assert states == set(LETTERS) == set(MEANINGS) == set(STYLES)
    assert len(set(LETTERS.values())) == len(states)


def test_two_runs_differ_in_nothing_but_time(certify: Certify, tmp_path: Path) -> None:
    kept = []
    for out in ("a", "b"):
        certify(*RUN, "--out", out, parts=parts(Fake(change=fakes.doubled_when_two_keys)))
        certificate = strict((tmp_path / out / "certificate.json").read_text())
        del certificate["times"]
        kept.append((certificate, sorted(f.name for f in (tmp_path / out / "counterexamples").iterdir())))
    assert kept[0] == kept[1]


def test_another_seed_draws_other_cases(certify: Certify, tmp_path: Path) -> None:
    kept = []
    for seed in ("0", "1"):
        certify(*RUN, "--seed", seed, "--out", seed, parts=parts(Fake()))
        kept.append(read_certificate(tmp_path / seed).coverage)
    assert kept[0] != kept[1]


def test_what_it_holds(certify: Certify, tmp_path: Path) -> None:
    certify(*RUN, "--dtype", "float32", parts=parts(Fake(), properties=(fakes.OUTPUT, fakes.OUTSIDE)))
    certificate = read_certificate(tmp_path / "cert/fake")
    held, outside = certificate.properties
    assert (held.state, held.cases, held.drawn) == ("held", 12, 12)
    assert isinstance(held.worst, float)
    assert held.worst_index is not None
    assert held.tensors["output"].elements > 12
    assert (outside.state, outside.cases, outside.note) == ("not_covered", 0, "a softcap not claimed")
    assert certificate.kernels == {"numpy": 12}
    assert sum(certificate.coverage["mask"].values()) == 12
    assert certificate.ledgers["float32"]["compute"] == "float64"
    assert certificate.audit is not None
    assert certificate.audit.rerun == 1
    assert any("Outside the subject's claim: outside" in line for line in certificate.not_claimed)
    assert any("does not claim" in line and "dropout" in line for line in certificate.not_claimed)


def test_infinite_ratios_are_a_word(certify: Certify, tmp_path: Path) -> None:
    certify(*RUN, "--dtype", "float32", parts=parts(Fake(change=fakes.not_a_number)))
    certificate = read_certificate(tmp_path / "cert/fake")
    assert certificate.properties[0].worst == "infinite"
    assert certificate.tensors["float32"]["output"].worst == "infinite"


def test_show_prints_the_verdict_again(certify: Certify, certified: Path) -> None:
    certificate = read_certificate(certified)
    for place in (certified, certified / "certificate.json"):
        result = certify("show", str(place), parts=parts(Fake()))
        assert result.exit_code == certificate.exit_code
        assert result.output.endswith(f"VERDICT {certificate.verdict} fake exit={certificate.exit_code}\n")


def test_files_that_are_no_certificate(tmp_path: Path) -> None:
    for text in ("", "{}", "[1]", '{"format": "attnspec.certificate/9"}'):
        (tmp_path / "certificate.json").write_text(text)
        with pytest.raises(UsageError, match="not a certificate of format"):
            read_certificate(tmp_path)


def test_rows_name_every_property_and_dtype_once(certified: Path) -> None:
    certificate: Certificate = read_certificate(certified)
    pairs = [(row.id, row.dtype) for row in certificate.properties]
    assert len(pairs) == len(set(pairs))
    if certificate.self_check is not None and certificate.self_check.passed:
        assert len(pairs) == 4 * len(certificate.request.dtypes)
