"""Where `gpulint check` writes its reports, and in which formats."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from fakes import Run

from gpulint.formats import FORMATS
from gpulint.report import sarif

REPO = Path(__file__).parent.parent.parent
BAD = "slow_copy()\nslow_math()\nsmall_batch()\nslow_copy()  # ignore\n"
COUNTED = [form for form, its in FORMATS.items() if its.statistics]


@pytest.fixture(name="bad")
def _bad(tmp_path: Path) -> Path:
    """A file with findings of all kinds."""
    file = tmp_path / "a.py"
    file.write_text(BAD)
    return file


@pytest.mark.parametrize("form", FORMATS)
def test_formats_change_no_exit_code(form: str, run: Run, tmp_path: Path) -> None:
    for name, text, code in [
        ("clean.py", "x = 1\n", 0),
        ("copy.py", "slow_copy()\n", 1),
        ("note.py", "small_batch()\n", 0),
        ("broken.py", "def def\n", 1),
        ("quiet.py", "slow_copy()  # ignore\n", 0),
    ]:
        (tmp_path / name).write_text(text)
        result = run("check", name, "--output-format", form)
        assert result.exit_code == code, (form, name, result.output)
        assert run("check", name, "-o", f"{form}:{name}.out").exit_code == code
        assert (tmp_path / f"{name}.out").read_text("utf-8") == result.stdout
    assert run("check", "none.py", "--output-format", form).exit_code == 2


def test_formats_need_no_rich(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "import torch\nfor x in loader:\n    x = x.cuda()\n    loss.backward()\n"
        "    total += loss.item()\n    optimizer.step()\n"
    )
    code = (
        "import sys\nfrom gpulint.cli import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit as stop:\n"
        "    print(stop.code, sorted({'rich', 'torch'} & set(sys.modules)))\n"
    )
    plain = [form for form in FORMATS if form != "full"]
    outputs = [word for form in plain for word in ("-o", f"{form}:{form}.out")]
    done = subprocess.run(
        [sys.executable, "-c", code, "check", "a.py", *outputs, "-o", "github:-"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPO)},
        check=True,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == "1 []"
    for form in plain:
        assert "GPU102" in (tmp_path / f"{form}.out").read_text("utf-8")


def test_formats_are_listed_in_the_help(run: Run) -> None:
    shown = "".join(run("check", "--help").output.split())
    assert all(form in shown for form in FORMATS)
    assert "[FORMAT:]FILE" in shown


def test_a_format_in_the_settings(run: Run, bad: Path) -> None:
    (bad.parent / "gpulint.toml").write_text('output-format = "grouped"')
    assert run("check").stdout.startswith("a.py:\n  1:1  GPU101 [*] ")


def test_files_beside_the_standard_output(run: Run, bad: Path) -> None:
    plain = run("check", "--output-format", "concise").stdout
    words = ("-o", "sarif:out.sarif", "-o", "json:out.json")
    result = run("check", "--output-format", "concise", *words)
    assert (result.exit_code, result.stdout) == (1, plain)
    assert json.loads((bad.parent / "out.json").read_text())
    assert json.loads((bad.parent / "out.sarif").read_text())["version"] == "2.1.0"


def test_one_format_stands_for_the_standard_output(run: Run, bad: Path) -> None:
    result = run("check", "-o", "github:-", "-o", "gitlab:out.json")
    assert result.stdout.startswith("::warning title=gpulint (GPU101),file=a.py,")
    assert len(json.loads((bad.parent / "out.json").read_text())) == 3
    assert run("check", "-o", "-").stdout == run("check").stdout


def test_a_file_in_place_of_the_standard_output(run: Run, bad: Path) -> None:
    result = run("check", "-o", "out.txt", "-o", "json:c:d", "-q")
    assert result.stdout == ""
    assert (bad.parent / "out.txt").read_text("utf-8") == run("check", "-q").stdout
    assert json.loads((bad.parent / "c:d").read_text())


@pytest.mark.parametrize(
    "words,said",
    [
        (["-o", "json:"], "names no file"),
        (["-o", ""], "names no file"),
        (["-o", "json:x", "-o", "sarif:./x"], "go to one place"),
        (["-o", "json:-", "-o", "-"], "go to one place"),
        (["--statistics", "--output-format", "sarif"], "sarif has no place"),
        (["--statistics", "--output-format", "html", "-o", "x"], "no place for them"),
    ],
)
def test_outputs_that_cannot_be(
    words: list[str], said: str, run: Run, bad: Path
) -> None:
    result = run("check", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert os.listdir(bad.parent) == ["a.py"]  # noqa: PTH208


def test_a_file_that_cannot_be_written(run: Run, bad: Path) -> None:
    (bad.parent / "folder").mkdir()
    words = ("-o", "json:missing/x", "-o", "sarif:folder", "-o", "gitlab:good.json")
    result = run("check", *words, "--output-format", "concise", "-q")
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        f"gpulint: error: {Path('missing/x')}: No such file or directory",
        "gpulint: error: folder: Is a directory",
    ]
    assert result.stdout.startswith("a.py:1:1: ")
    assert json.loads((bad.parent / "good.json").read_text())


def test_a_disk_that_is_full_leaves_the_old_file(
    run: Run, bad: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    out = bad.parent / "out.json"
    out.write_text("old")
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        result = run("check", "-o", "json:out.json", "-q")
    assert result.exit_code == 2
    assert result.stderr == "gpulint: error: out.json: No space left on device\n"
    assert out.read_text() == "old"
    assert sorted(p.name for p in bad.parent.iterdir()) == ["a.py", "out.json"]


def test_links_and_modes_stay(run: Run, bad: Path) -> None:
    target, link = bad.parent / "real.json", bad.parent / "link.json"
    target.touch(mode=0o640)
    target.chmod(0o640)
    link.symlink_to(target)
    assert run("check", "-o", "json:link.json").exit_code == 1
    assert link.is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert len(json.loads(target.read_text())) == 4


def test_what_is_no_file_is_written_to(run: Run, bad: Path) -> None:
    assert run("check", "-o", "json:/dev/null").exit_code == 1
    assert Path("/dev/null").is_char_device()


def test_a_terminal_gets_statistics_and_a_file_the_findings(
    run: Run, bad: Path
) -> None:
    result = run("check", "--statistics", "-o", "sarif:out.sarif")
    assert result.stdout.splitlines()[0] == "1  GPU101  [*]  slow-copy"
    [log] = json.loads((bad.parent / "out.sarif").read_text())["runs"]
    assert len(log["results"]) == 4


@pytest.mark.parametrize("form", COUNTED)
def test_statistics(form: str, run: Run, bad: Path) -> None:
    shown = run("check", "--statistics", "--output-format", form).stdout
    counts = [
        {"code": "GPU101", "name": "slow-copy", "count": 1, "fixable": True},
        {"code": "GPU301", "name": "slow-math", "count": 1, "fixable": True},
        {"code": "GPU401", "name": "small-batch", "count": 1, "fixable": False},
    ]
    if form == "json":
        assert json.loads(shown) == counts
    elif form == "json-lines":
        assert [json.loads(line) for line in shown.splitlines()] == counts
    else:
        assert shown.splitlines()[0] == "1  GPU101  [*]  slow-copy"


def test_a_warning_of_what_is_left_out(
    run: Run, bad: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sarif, "MAX_RESULTS", 1)
    result = run("check", "-o", "sarif:out.sarif", "-q")
    assert result.exit_code == 1
    [line] = result.stderr.splitlines()
    assert line.startswith("gpulint: warning: sarif: GitHub takes no more than 1 ")


def test_a_report_warns_on_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    from gpulint.report import Report

    Report(()).warn("said")
    assert capsys.readouterr().err == "gpulint: warning: said\n"


def test_junit_fails_from_the_level_of_the_run(run: Run, bad: Path) -> None:
    bad.write_text("small_batch()\n")
    words = ("check", "--output-format", "junit")
    assert 'failures="0"' in run(*words).stdout
    result = run(*words, "--fail-level", "note")
    assert (result.exit_code, 'failures="1"' in result.stdout) == (1, True)


# The published schema


@pytest.fixture(name="schema")
def _schema(run: Run) -> Any:
    result = run("config", "schema", "--output")
    assert result.exit_code == 0
    schema = json.loads(result.stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    return schema


def test_json_is_as_the_schema_says(run: Run, bad: Path, schema: Any) -> None:
    (bad.parent / "broken.py").write_bytes(b"\xff")
    validator = jsonschema.Draft202012Validator(schema)
    found = json.loads(run("check", "--output-format", "json").stdout)
    assert len(found) == 5
    validator.validate(found)
    for key, value in {"code": "X1", "fix": {}, "severity": "info"}.items():
        assert not validator.is_valid([{**found[0], key: value}])
    for key in found[0]:
        without = {k: v for k, v in found[0].items() if k != key}
        assert not validator.is_valid([without]), key
    assert schema["$defs"]["finding"]["properties"].keys() == found[0].keys()


def test_statistics_are_as_the_schema_says(run: Run, bad: Path, schema: Any) -> None:
    words = ("check", "--statistics", "--output-format", "json")
    one = {**schema, "type": "array", "items": {"$ref": "#/$defs/count"}}
    validator = jsonschema.Draft202012Validator(one)
    found = json.loads(run(*words).stdout)
    validator.validate(found)
    assert not validator.is_valid([{**found[0], "count": 0}])


def test_the_golden_report_is_as_the_schema_says(schema: Any) -> None:
    file = REPO / "tests" / "report" / "golden" / "json.txt"
    validator = jsonschema.Draft202012Validator(schema)
    validator.validate(json.loads(file.read_text("utf-8")))


def test_schema_of_nothing(run: Run) -> None:
    result = run("config", "schema")
    assert result.exit_code == 2
    assert "say of what: --output" in result.stderr
    assert run("config", "--help").exit_code == 0


def test_the_schema_is_in_the_package() -> None:
    assert (resources.files("gpulint.report") / "schema.json").is_file()
