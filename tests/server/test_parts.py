"""What the parts of the server make of documents, without an editor."""

from __future__ import annotations

import ast
import gc
import json
import weakref
from pathlib import Path

import pytest
from editor import REPO

from gpulint import engine
from gpulint.cli.options import Flags
from gpulint.finding import Position, Severity
from gpulint.index import FileIndex, build_index
from gpulint.report.places import Unit
from gpulint.server.checker import Checker
from gpulint.server.diagnostics import diagnostics, in_settings, location
from gpulint.server.documents import Change, Document, Point, Text
from gpulint.settings import Overrides
from gpulint.source import MAX_BYTES, Source

SLICES = (REPO / "fixtures/gpu101_per_column_transfer/bad.py").read_text("utf-8")
LOADERS = (REPO / "fixtures/gpu203_restarting_workers/bad.py").read_text("utf-8")


def checker(*folders: Path) -> Checker:
    flags = Flags(Overrides(), None, False, None, False, True, False)
    return Checker(flags, folders)


def document(path: Path, *texts: str) -> Document:
    its = tuple(Text(f"{path}#{n}", 1, text) for n, text in enumerate(texts))
    return Document(path.name, path, its, 1)


def applied(text: str, changes: list[Change]) -> str:
    """A text after changes whose places count code points."""
    starts = Text("", 1, text).page.starts
    for start, end, content in reversed(changes):
        first, last = (starts[at.line] + at.character for at in (start, end))
        text = text[:first] + content + text[last:]
    return text


@pytest.mark.parametrize(
    "old, new",
    [
        ("", "a\n"),
        ("a", "a\nb"),
        ("a\r\nb\r\n", "a\r\nc\r\n"),
        ("a\nb\nc\n", "c\n"),
        ("a\fb\nc", "a\fd\nc"),
        ("aa\nbb\n", "aa\nab\nbb\n"),
        ("é = 1\n", "é = 1\n# 名\n"),
        ("a\n", ""),
    ],
)
def test_changes_make_the_new_text(old: str, new: str) -> None:
    text = Text("", 1, old)
    assert applied(old, list(text.changes(new, Unit.CODE_POINTS))) == new


def test_changes_are_as_small_as_they_can_be() -> None:
    changes = list(Text("u", 1, "a\nb(1)\nc\n").changes("a\nb(12)\nc\n", Unit.UTF16))
    assert changes == [Change(Point("u", 1, 3), Point("u", 1, 3), "2")]


def test_cells_that_ipython_dedents(tmp_path: Path) -> None:
    book = document(tmp_path / "a.ipynb", "  x = 1\n  y = 2\n", "!ls\nz = 3\n")
    point = book.point(Position(3, 1))
    assert point == Point(book.texts[0].uri, 1, 2)
    [(text, [change])] = book.changes(book.source.text.replace("z = 3", "z = 4"))
    assert text == book.texts[1]
    assert change.start.line == 1
    assert change.content == "4"
    assert document(tmp_path / "a.ipynb").point(Position(1, 1)) is None


def test_fix_that_needs_a_file_is_not_offered_before_it_is_there(
    tmp_path: Path,
) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[tool.gpulint]\nruntime = "vendor"\nselect = ["GPU203"]\n', "utf-8"
    )
    its = checker(tmp_path)
    held = document(tmp_path / "train.py", LOADERS)
    looked = its.check(held, [held])
    assert looked is not None
    assert any(finding.fix for finding in looked.findings)
    assert not any(its.fixed(looked, finding) for finding in looked.findings)
    assert its.fixed_all(looked, [held], "GPU203") is None
    again = its.check(held, [held])
    assert again is not None
    assert [f.order for f in again.findings] == [f.order for f in looked.findings]


def test_accepted_by_the_baseline(tmp_path: Path) -> None:
    settings = '[tool.gpulint]\nselect = ["GPU101"]\nbaseline = "known.json"\n'
    (tmp_path / "pyproject.toml").write_text(settings, "utf-8")
    empty = {"schema": 1, "entries": []}
    (tmp_path / "known.json").write_text(json.dumps(empty), "utf-8")
    its = checker(tmp_path)
    held = document(tmp_path / "train.py", SLICES)
    looked = its.check(held, [held])
    assert looked is not None
    [finding] = looked.findings
    from gpulint.baseline import read_baseline

    baseline = read_baseline(tmp_path / "known.json")
    baseline.counts = baseline.count([finding])
    baseline.write()
    its.forget()
    looked = its.check(held, [held])
    assert looked is not None
    assert looked.findings == ()


def test_too_long_and_never_saved(tmp_path: Path) -> None:
    its = checker(tmp_path)
    for path in (tmp_path / "a.py", tmp_path / "a.ipynb"):
        long = document(path, "import torch\n" * (MAX_BYTES // 13 + 1))
        looked = its.check(long, [long])
        assert looked is not None
        [finding] = looked.findings
        assert finding.code == "GPU001"
        place = location(long, finding.place)
        assert place is not None
        assert place.range.start.line == 0
    new = document(Path("-"), SLICES)
    looked = its.check(new, [new])
    assert looked is not None
    assert [its.code for _, its in diagnostics(looked)] == ["GPU101"]


def test_files_left_out_by_default(tmp_path: Path) -> None:
    path = tmp_path / ".venv" / "lib" / "train.py"
    assert checker(tmp_path).excludes(path)
    assert not checker(tmp_path / ".venv" / "lib").excludes(path)


def test_findings_in_settings_files(tmp_path: Path) -> None:
    path = tmp_path / "gone.yaml"
    its = checker(tmp_path)
    held = document(tmp_path / "train.py", SLICES)
    looked = its.check(held, [held])
    assert looked is not None
    [finding] = looked.findings
    moved = finding._replace(place=finding.place._replace(path=path))
    shown = in_settings(moved, Unit.UTF16)
    assert shown.range.start.line == finding.place.start.row - 1


def test_settings_and_releases_that_have_changed(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    path = tmp_path / "train.py"
    (tmp_path / "requirements.txt").write_text("torch==2.1\n")
    its = checker(tmp_path)
    text = document(path, SLICES)

    def looked() -> tuple[object, dict[str, bool], set[Severity]]:
        found = its.check(text, [text])
        assert found is not None
        fixes = {f.code: f.fix is not None for f in found.findings}
        return found.options.torch_version, fixes, {f.severity for f in found.findings}

    before = looked()
    assert before[0] == (2, 1)
    assert before[1]["GPU101"]
    (tmp_path / "requirements.txt").write_text("torch==2.4\n")
    (tmp_path / "gpulint.toml").write_text(
        'unfixable = ["GPU101"]\nseverity = { ALL = "note" }'
    )
    assert looked() == before
    its.forget()
    version, fixes, severities = looked()
    assert version == (2, 4)
    assert not fixes["GPU101"]
    assert severities == {Severity.NOTE}
    (tmp_path / "gpulint.toml").write_text(
        'per-file-ignores = { "*.py" = ["ALL"] }\n[[per-path]]\npath = "x.py"'
    )
    its.forget()
    assert looked()[1] == {}


def test_settings_files_have_their_own_settings(tmp_path: Path) -> None:
    folder = REPO / "fixtures" / "projects" / "gpu902_yaml"
    for name in ("train.py", "train.yaml"):
        (tmp_path / name).write_text((folder / name).read_text("utf-8"), "utf-8")
    (tmp_path / "pyproject.toml").write_text("[tool.gpulint]\nselect = ['GPU9']")
    its, text = (
        checker(),
        document(tmp_path / "train.py", (tmp_path / "train.py").read_text()),
    )
    found = its.check(text, [text])
    assert found is not None
    assert [f.code for f in found.elsewhere] == ["GPU902"]
    with (tmp_path / "pyproject.toml").open("a") as file:
        file.write("\nper-file-ignores = { 'train.yaml' = ['GPU902'] }")
    its.forget()
    found = its.check(text, [text])
    assert found is not None
    assert found.elsewhere == ()


def test_earlier_texts_are_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[weakref.ref[FileIndex]] = []

    def build(source: Source, tree: ast.Module) -> FileIndex:
        index = build_index(source, tree)
        made.append(weakref.ref(index))
        return index

    monkeypatch.setattr(engine, "build_index", build)
    its, path = checker(tmp_path), tmp_path / "train.py"
    gc.collect()
    gc.disable()
    try:
        for text in (SLICES, f"{SLICES}\n"):
            held = document(path, text)
            its.check(held, [held])
        kept = [index() is not None for index in made]
        its.rest()
    finally:
        gc.enable()
    assert kept == [True, True], "they refer to themselves"
    assert [index() is not None for index in made] == [False, True]
