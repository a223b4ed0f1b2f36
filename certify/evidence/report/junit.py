"""JUnit XML: one test case for each claim and dtype, as continuous-integration servers read it."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping

from attnspec.certify.evidence.certificate import Certificate, PropertyRecord
from attnspec.certify.evidence.counterexample import CounterExample
from attnspec.certify.evidence.report.text import refutation

_ERRORS = {"own_fault", "not_reproducible", "unfinished"}
_SKIPPED = {"not_covered", "not_run", "undecided", "waived"}

# XML 1.0 has no way to write most control characters.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(certificate: Certificate, examples: Mapping[str, CounterExample]) -> str:
    """The document. What was not tested is skipped, never passed."""
    rows = certificate.properties
    counts = {
        "tests": len(rows),
        "failures": sum(row.state == "refuted" for row in rows),
        "errors": sum(row.state in _ERRORS for row in rows),
        "skipped": sum(row.state in _SKIPPED for row in rows),
    }
    attributes = {k: str(v) for k, v in counts.items()}
    root = ET.Element("testsuites", {"name": "certify", **attributes})
    suite = ET.SubElement(
        root,
        "testsuite",
        {
            "name": _clean(certificate.subject.spec),
            "timestamp": certificate.times.started,
            "time": f"{certificate.times.seconds:.3f}",
            **attributes,
        },
    )
    properties = ET.SubElement(suite, "properties")
    for name, value in (
        ("verdict", certificate.verdict),
        ("device", certificate.subject.device),
        ("profile", certificate.request.profile),
        ("seed", str(certificate.request.seed)),
    ):
        ET.SubElement(properties, "property", {"name": name, "value": _clean(value)})
    for row in rows:
        _case(suite, certificate, row, examples)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _case(
    suite: ET.Element, certificate: Certificate, row: PropertyRecord, examples: Mapping[str, CounterExample]
) -> None:
    case = ET.SubElement(
        suite, "testcase", {"classname": _clean(certificate.subject.spec), "name": f"{row.id}[{row.dtype}]"}
    )
    message = _clean(row.note or row.state.replace("_", " "))
    if row.state == "refuted":
        failure = ET.SubElement(case, "failure", {"type": "refuted", "message": _clean(row.claim)})
        example = examples.get(row.counterexample or "")
        failure.text = _clean(refutation(example, certificate.proofs)) if example else message
    elif row.state in _ERRORS:
        ET.SubElement(case, "error", {"type": row.state, "message": message})
    elif row.state in _SKIPPED:
        ET.SubElement(case, "skipped", {"message": f"{row.state.replace('_', ' ')}: {message}"})


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)
