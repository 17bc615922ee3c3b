"""What GitHub's runner, reviewdog, SonarQube, GitLab, Jenkins and Azure ask for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
from golden_report import FOLDER, render, sample
from samples import edit, entry, finding, place, source_of

from gpulint import report
from gpulint.finding import Effect, Fix, Place, Severity
from gpulint.source import Source, decode
from gpulint.text_edits import apply_fixes

SCHEMAS = Path(__file__).parent / "schemas"
MARK = b"\xef\xbb\xbf"


def one(source: Source, **changes: Any) -> report.Report:
    """A report of one finding at the first `x`."""
    found = finding(place(source, "x"), **changes)
    return report.Report((entry(source, found),), folder=FOLDER)


def named(name: str, **changes: Any) -> report.Report:
    return one(source_of("x\n", FOLDER / name), **changes)


# GitHub and Azure: commands in the log


def test_github_escapes() -> None:
    shown = render("github", named("a,b:c%.py", message="50 %,\n::error::x"))
    assert shown == (
        "::warning title=gpulint (GPU101),file=a%2Cb%3Ac%25.py,line=1,endLine=1,"
        "col=1,endColumn=2::a,b:c%25.py:1:1: GPU101 50 %25, ::error::x\n"
    )


def test_a_file_name_makes_no_command_of_its_own() -> None:
    path = FOLDER / "a\n::stop-commands::x\r.py"
    nowhere = Place(path, *place(source_of("x\n"), "x")[1:3])
    told = report.Report((entry(None, finding(nowhere)),), folder=FOLDER)
    for form in ("github", "azure"):
        [line] = render(form, told).splitlines()
        assert "%0A::stop-commands::x%0D.py" in line


def test_azure_escapes() -> None:
    shown = render("azure", named("a;b].py", message="50 % of x[0]; y"))
    assert shown == (
        "##vso[task.logissue type=warning;sourcepath=a%3Bb%5D.py;linenumber=1;"
        "columnnumber=1;code=GPU101;]50 %AZP25 of x[0]; y\n"
    )


# reviewdog


def test_rdjson_is_valid() -> None:
    schema = json.loads((SCHEMAS / "rdjson.json").read_text("utf-8"))
    validator = jsonschema.Draft4Validator(schema)
    document = json.loads(render("rdjson"))
    validator.validate(document)
    document["diagnostics"][0]["location"]["range"]["start"]["line"] = "1"
    assert not validator.is_valid(document)


def suggestions(told: report.Report) -> list[Any]:
    diagnostics = json.loads(render("rdjson", told))["diagnostics"]
    return [s for d in diagnostics for s in d.get("suggestions", [])]


def accepted(source: Source, suggestion: Any) -> bytes:
    """The file after a click: its lines in the place of those it names."""
    data = source.encode(source.text).decode(source.encoding)
    lines = re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", data)
    first, last = (suggestion["range"][k]["line"] for k in ("start", "end"))
    assert "column" not in suggestion["range"]["start"]
    text = suggestion["text"]
    end = lines[last - 1][len(lines[last - 1].rstrip("\r\n")) :]
    lines[first - 1 : last] = [text + end] if text else []
    return "".join(lines).encode(source.encoding)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", [b"", MARK])
def test_a_suggestion_is_the_whole_fix(newline: str, bom: bytes) -> None:
    told = sample(newline, bom)
    source = told.entries[-1].source
    assert source is not None
    # The fix of numerics is not allowed: no click may accept it.
    [suggestion] = suggestions(told)
    fix = told.entries[-1].findings[0].fix
    assert fix is not None
    assert accepted(source, suggestion) == source.encode(apply_fixes(source, [fix]))


@pytest.mark.parametrize(
    "text,old,new",
    [
        ("x = 1\ny = 2\nz = 3\n", "y = 2\n", ""),
        ("x = 1\ny = 2\nz = 3\n", "y = 2\n", "a\nb\n"),
        ("x = 1\ny = 2", "y = 2", "y = 3"),
        ("x = 1\ny = 2\n", "x", "# 慢\nx"),
        ("x = 1\r\ny = (\r\n2)\r\n", "(\r\n2)", "2"),
    ],
)
def test_suggestions_of_whole_lines(text: str, old: str, new: str) -> None:
    source = decode(MARK + text.encode(), FOLDER / "a.py")
    fix = Fix("Do it", Effect.EXACT, (edit(source, old, new),))
    [suggestion] = suggestions(one(source, fix=fix))
    assert accepted(source, suggestion) == source.encode(apply_fixes(source, [fix]))


def test_no_suggestion_of_a_hundred_lines_or_of_nothing() -> None:
    source = source_of("x = 1\n" + "#\n" * 98 + "y = 2\nz = 3\n", FOLDER / "a.py")
    near = (edit(source, "x", "a"), edit(source, "y", "b"))
    far = (edit(source, "x", "a"), edit(source, "z", "b"))
    assert suggestions(one(source, fix=Fix("Do it", Effect.EXACT, near)))
    assert not suggestions(one(source, fix=Fix("Do it", Effect.EXACT, far)))
    assert not suggestions(one(source, fix=Fix("Do it", Effect.EXACT, ())))


# SonarQube


def test_sonar_takes_it() -> None:
    """The checks of ExternalIssueReportValidator, and of the ranges of a file."""
    document = json.loads(render("sonar"))
    rules = {rule["id"]: rule for rule in document["rules"]}
    assert len(rules) == len(document["rules"])
    for rule in rules.values():
        assert all(rule[key] for key in ("name", "engineId", "description"))
        assert rule["type"] == "CODE_SMELL"
        assert rule["severity"] in ("BLOCKER", "CRITICAL", "MAJOR", "MINOR", "INFO")
        for impact in rule["impacts"]:
            assert impact["severity"] in ("HIGH", "MEDIUM", "LOW")
    for issue in document["issues"]:
        assert issue["ruleId"] in rules
        assert issue.keys() == {"ruleId", "primaryLocation", "secondaryLocations"}
        for location in (issue["primaryLocation"], *issue["secondaryLocations"]):
            assert location["message"]
            assert location["filePath"]
            its = location["textRange"]
            assert its["startLine"] >= 1
            if "startColumn" in its:
                start = (its["startLine"], its["startColumn"])
                assert start < (its["endLine"], its["endColumn"])
    assert [len(i["secondaryLocations"]) for i in document["issues"]] == [0, 0, 1, 0, 0]


def test_sonar_of_an_empty_file() -> None:
    nothing = Source(FOLDER / "a.py", "")
    nowhere = Place(nothing.path, nothing.position(0), nothing.position(0))
    told = report.Report((entry(nothing, finding(nowhere)),), folder=FOLDER)
    [issue] = json.loads(render("sonar", told))["issues"]
    assert issue["primaryLocation"]["textRange"] == {"startLine": 1}


# GitLab


def test_gitlab_takes_it() -> None:
    for record in json.loads(render("gitlab")):
        assert record["severity"] in ("info", "minor", "major", "critical", "blocker")
        assert record["description"].startswith(record["check_name"])
        assert not record["location"]["path"].startswith(("./", "/"))
        assert record["location"]["lines"]["begin"] >= 1


# JUnit


def outcome(told: report.Report) -> str:
    case = next(ElementTree.fromstring(render("junit", told)).iter("testcase"))
    return case[0].tag


def test_junit_fails_where_the_run_fails() -> None:
    source = source_of("x\n", FOLDER / "a.py")
    for level in Severity:
        for severity in Severity:
            found = finding(place(source, "x"), severity=severity)
            its = report.Entry(source, (found,), frozenset(), fail_level=level)
            failing = severity.rank >= level.rank
            assert its.fails(found) == failing
            tag = outcome(report.Report((its,), folder=FOLDER))
            assert tag == ("failure" if failing else "system-out")


def test_junit_of_characters_that_xml_lacks() -> None:
    told = named("a\x0c\udcff&<.py", message="\x1b \ud800 慢 😀 ]]>")
    root = ElementTree.fromstring(render("junit", told))
    case = next(root.iter("testcase"))
    assert case.get("file") == "a\ufffd\ufffd&<.py"
    assert case[0].get("message") == "    慢 😀 ]]>"
