"""Paths, rows and columns as those count who read them."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from golden_report import FOLDER, findings, render, sample
from samples import entry, finding, place

from gpulint import report
from gpulint.finding import Place, Position
from gpulint.report.places import (
    Paths,
    Region,
    Unit,
    in_unit,
    one_line,
    raw_region,
    raw_text,
    rows,
)
from gpulint.source import Source, decode

MARK = b"\xef\xbb\xbf"
FILES = [(newline, bom) for newline in ("\n", "\r\n", "\r") for bom in (b"", MARK)]
# What stands under the three findings of the sample that are shown.
CODE = [".to(self.device)", "criterion(", "lat, lon"]


@pytest.fixture(params=FILES, ids=repr)
def told(request: Any) -> report.Report:
    """The sample with each newline, with and without a mark at its beginning."""
    return sample(*request.param)


def text_of(told: report.Report) -> str:
    source = told.entries[-1].source
    assert source is not None
    return source.text


def lines_of(told: report.Report) -> list[str]:
    """The lines as an editor shows them: a form feed ends none."""
    return re.split(r"\r\n|\r|\n", text_of(told))


def loads(form: str, told: report.Report) -> Any:
    return json.loads(render(form, told))


def test_sarif(told: report.Report) -> None:
    [run] = loads("sarif", told)["runs"]
    assert run["columnKind"] == "unicodeCodePoints"
    regions = [
        result["locations"][0]["physicalLocation"]["region"]
        for result in run["results"][2:5]
    ]
    lines = lines_of(told)
    assert [r["startLine"] for r in regions] == [r["endLine"] for r in regions]
    assert [
        lines[r["startLine"] - 1][r["startColumn"] - 1 : r["endColumn"] - 1]
        for r in regions
    ] == CODE


def test_github(told: report.Report) -> None:
    lines = lines_of(told)
    shown = []
    for command in render("github", told).splitlines()[2:]:
        line, end_line, start, end = (
            int(re.search(rf"{key}=(\d+)", command)[1])  # type: ignore[index]
            for key in (",line", "endLine", ",col", "endColumn")
        )
        assert line == end_line
        shown.append(lines[line - 1][start - 1 : end - 1])
    assert shown == CODE


def test_azure(told: report.Report) -> None:
    lines = lines_of(told)
    found = re.findall(r"linenumber=(\d+);columnnumber=(\d+)", render("azure", told))
    for code, (line, column) in zip(CODE, found[2:], strict=True):
        assert lines[int(line) - 1][int(column) - 1 :].startswith(code)


def test_text_and_json(told: report.Report) -> None:
    lines = lines_of(told)
    concise = re.findall(r"py:(\d+):(\d+):", render("concise", told))[2:]
    grouped = re.findall(r"^  (\d+):(\d+) ", render("grouped", told), re.MULTILINE)[2:]
    assert concise == grouped
    records = [json.loads(line) for line in render("json-lines", told).splitlines()]
    assert records == loads("json", told)
    places = [record["location"] for record in records[2:5]]
    assert [(str(p["row"]), str(p["column"])) for p in places] == concise
    for code, (row, column) in zip(CODE, concise, strict=True):
        assert lines[int(row) - 1][int(column) - 1 :].startswith(code)


def test_lines_alone(told: report.Report) -> None:
    rows = [7, 9, 10]
    gitlab = [f["location"]["lines"] for f in loads("gitlab", told)[2:]]
    assert gitlab == [{"begin": row, "end": row} for row in rows]
    root = ElementTree.fromstring(render("junit", told))
    cases = [case.get("line") for case in root.iter("testcase")]
    assert cases[2:5] == [str(row) for row in rows]


def test_sonar_counts_utf16_units(told: report.Report) -> None:
    lines = lines_of(told)
    shown = []
    issues = loads("sonar", told)["issues"][2:]
    locations = [issue["primaryLocation"] for issue in issues]
    for location in (*locations, *issues[0]["secondaryLocations"]):
        its = location["textRange"]
        units = lines[its["startLine"] - 1].encode("utf-16-le")
        assert its["endLine"] == its["startLine"]
        part = units[2 * its["startColumn"] : 2 * its["endColumn"]]
        shown.append(part.decode("utf-16-le"))
    assert shown == [*CODE, CODE[0]]


def test_rdjson_counts_utf8_bytes(told: report.Report) -> None:
    source = told.entries[-1].source
    assert source is not None
    lines = re.split(rb"\r\n|\r|\n", source.encode(source.text))
    shown = []
    diagnostics = loads("rdjson", told)["diagnostics"][2:]
    for found in (*diagnostics, *diagnostics[0]["related_locations"]):
        start, end = (found["location"]["range"][k] for k in ("start", "end"))
        line = lines[start["line"] - 1]
        shown.append(line[start["column"] - 1 : end["column"] - 1].decode())
    assert shown == [*CODE, CODE[0]]


def test_the_mark_of_a_file_has_bytes_and_no_columns() -> None:
    source = Source(FOLDER / "a.py", "lat = 1\n", bom=MARK)
    [row] = rows(report.Report((entry(source, finding(place(source, "1"))),), FOLDER))
    assert row.region == Region(Position(1, 7), Position(1, 8))
    assert row.at(Unit.UTF16) == row.at(Unit.CODE_POINTS) == row.region
    assert row.at(Unit.UTF8) == Region(Position(1, 10), Position(1, 11))


@pytest.mark.parametrize(
    "text,at,shown",
    [
        ("    x = 1  \n", (1, 1), "x = 1"),
        ("x = 1  # why\n", (1, 8), "# why"),
        ("x = 1\n", (1, 9), "x = 1"),
        ("x = 1\n   \ny\n", (2, 1), ""),
        ("x = 1\n", (2, 1), ""),
        ("x = 1\n", (7, 3), ""),
    ],
)
def test_points_take_what_stands_behind_them(
    text: str, at: tuple[int, int], shown: str
) -> None:
    source = Source(FOLDER / "a.py", text)
    point = Position(*at)
    region = one_line(Place(source.path, point, point), source)
    assert region.empty == (not shown)
    start, end = region
    assert start.row == end.row <= len(source.starts)
    assert source.line(start.row)[start.column - 1 : end.column - 1] == shown


def test_a_place_without_its_text() -> None:
    start, end = Position(3, 5), Position(4, 2)
    nowhere = Place(FOLDER / "a.py", start, end)
    assert raw_region(nowhere, None) == Region(start, end)
    assert one_line(nowhere, None) == Region(start, start)
    assert in_unit(Region(start, end), None, Unit.UTF8) == Region(start, end)


def test_raw_text_is_that_of_programs_which_know_utf8_only() -> None:
    latin = decode("# coding: latin-1\nx = 'é'\n".encode("latin-1"), FOLDER / "a.py")
    assert raw_text(latin) == "# coding: latin-1\nx = '\ufffd'\n"
    marked = Source(FOLDER / "a.py", "x\n", bom=MARK)
    assert raw_text(marked) == "\ufeffx\n"
    odd = Source(FOLDER / "a.py", "'é'\n", encoding="ascii")
    assert raw_text(odd) == odd.text


def test_paths_are_those_of_the_repository(tmp_path: Path) -> None:
    (tmp_path / "sub" / "deep").mkdir(parents=True)
    paths = Paths(tmp_path / "sub")
    assert paths.of(tmp_path / "sub" / "deep" / "a.py") == "deep/a.py"
    assert paths.of(tmp_path / "a.py") == (tmp_path / "a.py").as_posix()
    assert paths.of(Path("-")) == "-"
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    paths = Paths(tmp_path / "sub")
    assert paths.of(tmp_path / "sub" / "deep" / "a.py") == "sub/deep/a.py"


def identities(*files: Source) -> Iterator[str]:
    entries = tuple(entry(s, *findings(s, "\r\n")) for s in files)
    told = report.Report(entries, folder=FOLDER)
    return (row.identity for row in rows(told, suppressed=True))


def test_identities_are_unique_and_stay_when_lines_move() -> None:
    one = sample().entries[-1].source
    assert one is not None
    other = Source(FOLDER / "other.py", one.text)
    moved = one.with_text("#\r\n#\r\n" + one.text)
    found = list(identities(one, other))
    assert len(set(found)) == len(found) == 8
    assert list(identities(moved, other)) == found
