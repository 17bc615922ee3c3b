"""The formats for editors and programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from samples import DATASET, columns, edit, entry, finding, place, render, source_of

from gpulint.finding import Effect, Fix, Place, Position

RECORD = [
    "code",
    "name",
    "message",
    "severity",
    "effect",
    "confidence",
    "filename",
    "cell",
    "location",
    "end_location",
    "related",
    "evidence",
    "fix",
    "fix_withheld",
    "fingerprint",
    "suppressed",
]

SUMMARY = (
    "[*] 1 fixable with `gpulint fix`   [**] 1 more with `--allow random`   "
    "1 shown only"
)


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_concise() -> None:
    source = source_of(DATASET, Path.cwd() / "src" / "a.py")
    risky = Fix("Risk it", Effect.RANDOM, (edit(source, "lat", "x"),))
    shown = render(
        entry(
            source,
            columns(source),
            finding(place(source, "lat"), message="two\nlines", fix=risky),
            finding(place(source, "lon"), message="no fix"),
            finding(place(source, "lon"), suppressed="inline"),
        ),
        form="concise",
    )
    path = Path("src/a.py")
    message = "2 columns of `batch_data` are copied to the device one by one"
    assert shown.splitlines() == [
        f"{path}:5:31: GPU101 [*] {message}",
        f"{path}:5:9: GPU101 [**] two lines",
        f"{path}:6:9: GPU101 no fix",
        "Found 3 findings in 1 file (3 warning)",
        SUMMARY,
    ]
    assert render(entry(source), form="concise") == "All checks passed!\n"
    assert render(entry(source), form="concise", quiet=True) == ""


def test_json_record() -> None:
    source = source_of(DATASET)
    [told] = json.loads(render(entry(source, columns(source)), form="json"))
    path = str(source.path)
    assert list(told) == RECORD
    assert told["filename"] == path
    assert told["location"] == {"row": 5, "column": 31}
    assert told["end_location"] == {"row": 5, "column": 47}
    assert told["related"] == [
        {
            "filename": path,
            "cell": None,
            "location": {"row": 6, "column": 31},
            "end_location": {"row": 6, "column": 47},
            "message": "2 of 2",
        }
    ]
    assert told["evidence"] == [
        {
            "filename": path,
            "cell": None,
            "row": 4,
            "note": "`process` runs once a step",
        }
    ]
    assert list(told["fix"]) == ["effect", "message", "edits"]
    assert told["fix"]["edits"][0]["content"].strip() == "from gpulint import runtime"
    assert told["fix"]["edits"][2] == {
        "content": "",
        "cell": None,
        "location": {"row": 6, "column": 31},
        "end_location": {"row": 6, "column": 47},
    }
    assert (told["severity"], told["effect"], told["confidence"]) == (
        "warning",
        "exact",
        "high",
    )
    assert len(told["fingerprint"]) == 16
    assert told["cell"] is told["fix_withheld"] is told["suppressed"] is None


def test_json_counts_code_points_and_stays_ascii(tmp_path: Path) -> None:
    source = source_of('标签 = "😀"; 慢(x)\r\n', tmp_path / "数\udcff据.py")
    found = finding(place(source, "慢"), message="慢\ud800", fix_withheld="不知道")
    shown = render(entry(source, found), form="json")
    assert shown.isascii()
    [told] = json.loads(shown)
    assert told["location"] == {"row": 1, "column": 11}
    assert told["message"] == "慢\ud800"
    assert told["fix_withheld"] == "不知道"


def test_json_has_one_finding_a_line() -> None:
    source = source_of("a\nb\n")
    found = (
        finding(place(source, "a")),
        finding(place(source, "b"), suppressed="inline"),
    )
    shown = render(entry(source, *found), entry(None), form="json")
    assert len(shown.splitlines()) == 4
    assert [told["suppressed"] for told in json.loads(shown)] == [None, "inline"]
    assert render(form="json") == "[]\n"


def test_json_of_the_standard_input() -> None:
    nowhere = Place(Path("-"), Position(1, 1), Position(1, 1))
    fix = Fix("Never", Effect.EXACT, ())
    found = finding(nowhere, fix=fix)
    [told] = json.loads(render(entry(None, found), form="json"))
    assert (told["filename"], told["fix"]) == ("-", None)
