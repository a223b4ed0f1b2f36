"""pytest options that hold any subject to the properties: `pytest -m property --backend NAME --dtype bfloat16`.

A test that takes the fixture `conformance_case` is run once for each property, subject and dtype. The test file of
this project's own suite is tests/property/test_conformance.py; one line in a suite of yours does the same:

    from attnspec.certify.conformance import test_property
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from attnspec.certify.conformance import ConformanceCase

DEFAULT_SUBJECTS = ("numpy-reference", "torch-sdpa:math", "torch-sdpa:flash")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("attnspec", "attention conformance")
    group.addoption(
        "--subject",
        "--backend",
        action="append",
        default=None,
        metavar="NAME",
        dest="attnspec_subjects",
        help="subject to hold to the properties: a registered name, module:attr or path.py:attr (repeatable)",
    )
    group.addoption("--device", default="cpu", dest="attnspec_device", help="device of the subjects (default: cpu)")
    group.addoption(
        "--dtype",
        action="append",
        default=None,
        dest="attnspec_dtypes",
        help="dtype to test (repeatable; default: float32 and bfloat16, where claimed)",
    )
    group.addoption(
        "--certify-profile",
        choices=("smoke", "pr", "release"),
        default="smoke",
        dest="attnspec_profile",
        help="how large and how many calls are drawn (default: smoke)",
    )
    group.addoption(
        "--certify-examples",
        type=int,
        default=None,
        dest="attnspec_examples",
        help="calls for each property, in place of the profile's number",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "property: the conformance suite, one test per property, subject and dtype")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "conformance_case" not in metafunc.fixturenames:
        return
    from attnspec.certify.conformance import cases
    from attnspec.certify.errors import CertifyError

    config = metafunc.config
    try:
        found = cases(
            config.getoption("attnspec_subjects") or DEFAULT_SUBJECTS,
            config.getoption("attnspec_device"),
            config.getoption("attnspec_dtypes"),
            config.getoption("attnspec_profile"),
            config.getoption("attnspec_examples"),
        )
    except CertifyError as error:
        raise pytest.UsageError(str(error)) from error
    metafunc.parametrize("conformance_case", found, ids=[case.id for case in found])


@pytest.fixture
def attnspec_failing_examples(request: pytest.FixtureRequest) -> Path | None:
    """Where calls that failed are kept for the next run: in pytest's cache, or nowhere when that is off."""
    cache = getattr(request.config, "cache", None)
    return None if cache is None else Path(cache.mkdir("attnspec"))


@pytest.fixture
def conformance_case(request: pytest.FixtureRequest) -> ConformanceCase:
    """One property to which one subject is held at one dtype."""
    return request.param
