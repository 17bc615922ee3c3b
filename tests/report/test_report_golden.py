"""What each format makes of one report, whole: `tests/regenerate.py` writes it anew."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest
from golden_report import FOLDER, golden, render, sample

from gpulint import report
from gpulint.formats import FORMATS
from gpulint.source import Source

WITH_SUPPRESSED = ("json", "json-lines", "sarif")
EMPTY = {
    "full": "All checks passed!\n",
    "concise": "All checks passed!\n",
    "grouped": "All checks passed!\n",
    "json": "[]\n",
    "json-lines": "",
    "github": "",
    "azure": "",
    "gitlab": "[]\n",
}


@pytest.mark.parametrize("form", FORMATS)
def test_golden(form: str) -> None:
    assert render(form) == golden(form).read_text("utf-8")


@pytest.mark.parametrize("form", FORMATS)
def test_twice_the_same(form: str) -> None:
    assert render(form, sample()) == render(form, sample())


@pytest.mark.parametrize("form", EMPTY)
def test_nothing_found(form: str) -> None:
    assert render(form, nothing()) == EMPTY[form]


def nothing() -> report.Report:
    clean = Source(FOLDER / "clean.py", "x = 1\n")
    return report.Report((report.Entry(clean, (), frozenset()),), folder=FOLDER)


def test_nothing_found_in_documents() -> None:
    [run] = json.loads(render("sarif", nothing()))["runs"]
    assert run["results"] == run["tool"]["driver"]["rules"] == []
    assert json.loads(render("sonar", nothing())) == {"rules": [], "issues": []}
    assert json.loads(render("rdjson", nothing()))["diagnostics"] == []
    root = ElementTree.fromstring(render("junit", nothing()))
    assert (root.get("tests"), root.get("failures")) == ("1", "0")
    assert "0 findings in 0 files; 1 file checked" in render("html", nothing())


@pytest.mark.parametrize("form", [f for f in FORMATS if f not in WITH_SUPPRESSED])
def test_suppressed_findings_are_no_findings(form: str) -> None:
    """JUnit has a word for them; the others that list them say how they are."""
    shown = render(form)
    if form == "junit":
        assert shown.count("<skipped") == 1
        assert shown.count("<failure") == 3
    else:
        assert "12:3" not in shown
        assert "bd4f70d2" not in shown


def test_grouped_without_its_summary() -> None:
    told = sample()
    quiet = report.Report(told.entries, folder=FOLDER, quiet=True)
    assert "Found" not in render("grouped", quiet)
