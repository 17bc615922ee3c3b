"""Comments that switch findings off: written by `check`, read again, looked through."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import gpulint
from gpulint.cli import main
from gpulint.engine import Options, check_source
from gpulint.finding import Finding, Place
from gpulint.ignores import Form, add_ignores, may_be_ignored
from gpulint.registry import all_rules, select_rules
from gpulint.source import Source, read_source

FIXTURES = Path(gpulint.__file__).resolve().parent.parent / "fixtures"
OLD = "import torch\n\n\ndef train(model, batch):\n    with torch.cuda.amp.autocast():\n        return model(batch)\n"
WITH = "    with torch.cuda.amp.autocast():"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*words: str, select: str = "GPU002,GPU003,GPU303") -> Result:
    return CliRunner().invoke(
        main,
        [
            "check",
            "--no-cache",
            "--output-format",
            "concise",
            "--select",
            select,
            *words,
        ],
    )


def added(text: str, *words: str) -> str:
    """What `--add-ignore` makes of a text; nothing is left, and once is enough."""
    script = Path("train.py")
    script.write_text(text, "utf-8", newline="")
    result = run(*(words or ("--add-ignore",)), "--fail-level", "note")
    assert result.exit_code == 0, result.output
    first = script.read_bytes()
    assert run(*(words or ("--add-ignore",))).stderr == (
        "Added comments for 0 findings in 0 files\n"
    )
    assert script.read_bytes() == first
    return first.decode("utf-8")


def test_at_the_end_of_the_line() -> None:
    assert added(OLD) == OLD.replace(WITH, f"{WITH}  # gpulint: ignore[GPU303]")


def test_a_reason() -> None:
    text = added(OLD, "--add-ignore=旧代码, needed on windows")
    assert f"{WITH}  # gpulint: ignore[GPU303] -- 旧代码, needed on windows\n" in text


def test_the_next_word_is_a_file_and_not_a_reason(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(OLD)
    (tmp_path / "b.py").write_text(OLD)
    result = run("--add-ignore", "a.py")
    assert result.exit_code == 0
    assert "Added comments for 1 finding in 1 file" in result.stderr
    assert "ignore[GPU303]\n" in (tmp_path / "a.py").read_text()
    assert (tmp_path / "b.py").read_text() == OLD
    assert run("--", "--add-ignore").exit_code == 2  # no such file


@pytest.mark.parametrize(
    "line,expected",
    [
        ("{w}  # mixed", "{w}  # mixed  # gpulint: ignore[GPU303]"),
        ("{w}  # noqa: E501", "{w}  # noqa: E501  # gpulint: ignore[GPU303]"),
        (
            "{w}  # gpulint: ignore[GPU404] -- why",
            "{w}  # gpulint: ignore[GPU404, GPU303] -- why",
        ),
        ("{w}  # gpulint: ignore[]", "{w}  # gpulint: ignore[GPU303]"),
        ("{w}  # gpulint: ignore", "{w}  # gpulint: ignore[GPU303]"),
        ("{w}  ", "{w}  # gpulint: ignore[GPU303]"),
        (
            "    with torch.cuda.amp.autocast(\n    ):",
            "    with torch.cuda.amp.autocast(  # gpulint: ignore[GPU303]\n    ):",
        ),
        (
            "    with torch.cuda.amp \\\n      .autocast():",
            "    # gpulint: ignore[GPU303]\n    with torch.cuda.amp \\\n      .autocast():",
        ),
        (
            (
                "    # gpulint: ignore[GPU404] -- why\n    # more\n"
                "    with torch.cuda.amp \\\n      .autocast():"
            ),
            (
                "    # gpulint: ignore[GPU404, GPU303] -- why\n    # more\n"
                "    with torch.cuda.amp \\\n      .autocast():"
            ),
        ),
        (
            "    with torch.cuda.amp.autocast(), say('''a\n b'''):",
            (
                "    # gpulint: ignore[GPU303]\n"
                "    with torch.cuda.amp.autocast(), say('''a\n b'''):"
            ),
        ),
        (
            "    with torch.cuda.amp.autocast(), say(f'''{model}\n b'''):",
            (
                "    # gpulint: ignore[GPU303]\n"
                "    with torch.cuda.amp.autocast(), say(f'''{model}\n b'''):"
            ),
        ),
        (
            "    with say('''a\n b'''), torch.cuda.amp.autocast():",
            (
                "    with say('''a\n b'''), torch.cuda.amp.autocast():"
                "  # gpulint: ignore[GPU303]"
            ),
        ),
        (
            "{w}" + "  # " + "x" * 70,
            "    # gpulint: ignore[GPU303]\n{w}  # " + "x" * 70,
        ),
        (
            "    with torch.cuda.amp.autocast(), torch.cuda.amp.autocast():",
            (
                "    with torch.cuda.amp.autocast(), torch.cuda.amp.autocast():"
                "  # gpulint: ignore[GPU303]"
            ),
        ),
    ],
)
def test_places(line: str, expected: str) -> None:
    line, expected = line.replace("{w}", WITH), expected.replace("{w}", WITH)
    assert added(OLD.replace(WITH, line)) == OLD.replace(WITH, expected)


@pytest.mark.parametrize(
    "line,expected",
    [
        ("{w}", "{w}  # noqa: GPU303"),
        ("{w}  # noqa: E501", "{w}  # noqa: E501, GPU303"),
        ("{w}  # noqa", "{w}  # noqa  # noqa: GPU303"),
        ("{w}" + "  # " + "x" * 70, "{w}  # " + "x" * 70 + "  # noqa: GPU303"),
        (
            "    with torch.cuda.amp \\\n      .autocast():",
            "    with torch.cuda.amp \\\n      .autocast():  # noqa: GPU303",
        ),
    ],
)
def test_noqa(line: str, expected: str) -> None:
    line, expected = line.replace("{w}", WITH), expected.replace("{w}", WITH)
    assert added(OLD.replace(WITH, line), "--add-noqa") == OLD.replace(WITH, expected)
    text = added(OLD, "--add-noqa=old code")
    assert f"{WITH}  # noqa: GPU303 -- old code\n" in text


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbf" + OLD.replace("\n", "\r\n").encode(),
        ("# -*- coding: gbk -*-\n# 数据\n" + OLD).encode("gbk"),
        ("#!/usr/bin/env python\n" + OLD.rstrip()).encode(),
        OLD.replace("def", "\x0cdef").encode(),
        OLD.replace("    ", "\t").encode(),
    ],
    ids=["bom-crlf", "gbk", "no-newline", "form-feed", "tabs"],
)
def test_bytes_are_kept(tmp_path: Path, data: bytes) -> None:
    script = tmp_path / "a.py"
    script.write_bytes(data)
    script.chmod(0o755)
    assert run("--add-ignore").exit_code == 0
    new = script.read_bytes()
    assert new.replace(b"  # gpulint: ignore[GPU303]", b"") == data
    assert script.stat().st_mode & 0o777 == 0o755


def test_a_line_of_its_own_has_the_files_newline(tmp_path: Path) -> None:
    text = OLD.replace("amp.autocast", "amp \\\n  .autocast").replace("\n", "\r\n")
    (tmp_path / "a.py").write_bytes(text.encode())
    assert run("--add-ignore").exit_code == 0
    new = (tmp_path / "a.py").read_bytes()
    assert b"    # gpulint: ignore[GPU303]\r\n    with" in new
    assert new.count(b"\n") == new.count(b"\r\n")


def test_a_reason_that_the_encoding_lacks(tmp_path: Path) -> None:
    data = ("# -*- coding: latin-1 -*-\n" + OLD).encode("latin-1")
    (tmp_path / "a.py").write_bytes(data)
    result = run("--add-ignore=旧")
    assert result.exit_code == 1
    assert "a.py: no comment can be added to it" in result.stderr
    assert (tmp_path / "a.py").read_bytes() == data


def test_a_reason_that_would_be_an_encoding(tmp_path: Path) -> None:
    text = "import torch; scaler = torch.cuda.amp \\\n  .GradScaler()\n"
    (tmp_path / "a.py").write_text(text)
    assert run("--add-ignore=coding: nothing").exit_code == 1
    assert (tmp_path / "a.py").read_text() == text


@pytest.mark.parametrize(
    "words",
    [
        ["--add-ignore=two\nlines"],
        ["--add-ignore=# gpulint: skip-file"],
        ["--add-ignore", "--add-noqa"],
        ["--add-ignore", "--ignore-noqa"],
        ["--add-ignore", "-"],
    ],
)
def test_what_cannot_be_asked_for(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "a.py").write_text(OLD)
    result = run(*words)
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert (tmp_path / "a.py").read_text() == OLD


def test_a_file_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "a.py").write_text(OLD)
    monkeypatch.setattr("gpulint.source.replace_file", refuse)
    result = run("--add-ignore", "-q")
    assert result.exit_code == 2
    assert result.stderr == "gpulint: error: a.py: not written: Permission denied\n"


def test_what_no_comment_answers(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import torch\nprint(\n")
    (tmp_path / "b.py").write_text("import torch\nx = 1  # gpulint: ignore\n")
    result = run("--add-ignore", select="GPU000,GPU003")
    assert result.exit_code == 1
    assert "Added comments for 0 findings" in result.stderr
    assert (tmp_path / "b.py").read_text().endswith("# gpulint: ignore\n")


def test_only_what_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(OLD)
    CliRunner().invoke(main, ["baseline", "create", "--select", "GPU303"])
    (tmp_path / "a.py").write_text(OLD + OLD.replace("def train", "def other"))
    run("--add-ignore", "--baseline", "gpulint-baseline.json")
    lines = (tmp_path / "a.py").read_text().splitlines()
    assert [n for n, line in enumerate(lines) if "ignore" in line] == [10]


@pytest.mark.parametrize(
    "text,expected",
    [
        ("t:\n  use_amp: false\n", "t:\n  use_amp: false  # gpulint: ignore[GPU902]\n"),
        (
            "t:\n  use_amp: false  # no\n",
            "t:\n  use_amp: false  # no  # gpulint: ignore[GPU902]\n",
        ),
        (
            "t:\n  use_amp: false # gpulint: ignore[GPU901] -- x\n",
            "t:\n  use_amp: false # gpulint: ignore[GPU901, GPU902] -- x\n",
        ),
        ('t:\n  {"use_amp": false, "s": "a\n    b"}\n', None),
        ('t:\n  {"s": "a\n   b", "use_amp": false, "t": "a\n    b"}\n', None),
    ],
)
def test_settings_files(tmp_path: Path, text: str, expected: str | None) -> None:
    path = tmp_path / "train.yaml"
    path.write_text(text)
    source = read_source(path)
    row = 1 + text[: text.index("use_amp")].count("\n")
    finding = make(path, row, "GPU902")
    assert add_ignores(source, [finding], Form()) == expected


def test_json_has_no_comments(tmp_path: Path) -> None:
    path = tmp_path / "train.json"
    path.write_text('{"use_amp": false}\n')
    assert add_ignores(read_source(path), [make(path, 1, "GPU902")], Form()) is None


def make(path: Path, row: int, code: str) -> Finding:
    options = Options(select_rules(("GPU303",)))
    (found,) = check_source(Source(Path("a.py"), OLD), options).findings
    at = found.place.start._replace(row=row)
    return found._replace(code=code, place=Place(path, at, at))


@pytest.mark.parametrize(
    "folder",
    [p.name for p in sorted(FIXTURES.glob("gpu[1-8]*")) if (p / "bad.py").exists()],
)
def test_nothing_is_left_of_any_rule(folder: str) -> None:
    source = read_source(FIXTURES / folder / "bad.py")
    options = Options(all_rules())
    found = [f for f in check_source(source, options).findings if may_be_ignored(f)]
    reason = "memory, needed for now on windows"  # words that rules take for reasons
    text = add_ignores(source, found, Form(reason=reason))
    assert text is not None
    assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(source.text))
    left = check_source(source.with_text(text), options).findings
    assert [f for f in left if f.suppressed is None] == []


# Reading them


BLOCK = """\
import torch

# gpulint: off[GPU303] -- the old names
def train(model, batch):
    with torch.cuda.amp.autocast():
        return model(batch)
# gpulint: on[GPU303]


def test(model, batch):
    with torch.cuda.amp.autocast():
        return model(batch)
"""


@pytest.mark.parametrize(
    "old,new,told",
    [
        ("", "", ["11:GPU303"]),
        ("on[GPU303]", "on", ["11:GPU303"]),
        ("on[GPU303]", "on[deprecated-amp-api]", []),
        ("[GPU303]", "[deprecated-amp-api]", ["11:GPU303"]),
        ("# gpulint: on[GPU303]", "", []),
        ("off[GPU303]", "off[GPU301, gpu303]", ["3:GPU002", "11:GPU303"]),
        ("off[GPU303]", "off", ["3:GPU003", "5:GPU303", "11:GPU303"]),
        ("off[GPU303]", "off[GPU998]", ["3:GPU002", "5:GPU303", "11:GPU303"]),
        (
            "# gpulint: on",
            "# gpulint: off[GPU303]\n# gpulint: on",
            ["7:GPU002", "12:GPU303"],
        ),
    ],
)
def test_blocks(tmp_path: Path, old: str, new: str, told: list[str]) -> None:
    (tmp_path / "a.py").write_text(BLOCK.replace(old, new) if old else BLOCK)
    result = run(select="GPU002,GPU003,GPU301,GPU303")
    lines = [line for line in result.stdout.splitlines() if line.startswith("a.py:")]
    shown = [f"{line.split(':')[1]}:{line.split()[1]}" for line in lines]
    assert shown == told


def test_findings_behind_comments_on_request(tmp_path: Path) -> None:
    lines = [f"{WITH}  # noqa: GPU303", f"{WITH}  # gpulint: ignore[GPU303]"]
    for name, line in zip("ab", lines, strict=True):
        (tmp_path / f"{name}.py").write_text(OLD.replace(WITH, line))
    (tmp_path / "c.py").write_text("# gpulint: skip-file\n" + OLD)
    assert run().exit_code == 0
    result = run("--ignore-noqa")
    assert result.exit_code == 1
    assert "Found 3 findings in 3 files" in result.stdout


def test_unused_comments_with_any_selection(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import torch\nx = 1  # gpulint: ignore[GPU303]\n")
    assert "GPU002" not in run(select="GPU303").stdout
    assert "GPU002" in run("--report-unused-ignores", select="GPU303").stdout
    assert "GPU002" in run().stdout
    assert "GPU002" not in run("--no-report-unused-ignores").stdout
    (tmp_path / "gpulint.toml").write_text('ignore = ["gpu002"]\n')
    words = ["check", "--no-cache", "--output-format", "concise"]
    assert "GPU002" not in CliRunner().invoke(main, words).stdout
    words.append("--report-unused-ignores")
    assert "GPU002" in CliRunner().invoke(main, words).stdout
