"""What `gpulint check` reads, prints and writes."""

from __future__ import annotations

import errno
import gc
import json
from pathlib import Path

import pytest
from fakes import FakeEngine, Run

from gpulint.finding import Effect

CHINESE = "# 数据加载\nslow_copy(数据)  # 慢\n"


def test_default_is_the_current_folder(run: Run, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("slow_copy()\n")
    result = run("check", "--output-format", "concise")
    assert result.stdout.splitlines() == [
        f"{Path('src/a.py')}:1:1: GPU101 [*] `slow_copy` is slow",
        "Found 1 finding in 1 file (1 warning)",
        "[*] 1 fixable with `gpulint fix`",
    ]


def test_nothing_found(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.py").touch()
    assert run("check").output == "All checks passed!\n"
    assert run("check", "-q").output == ""
    assert run("check", "--output-format", "json").output == "[]\n"
    assert run("check", "--statistics", "--output-format", "json").output == "[]\n"


def test_no_files_is_said(run: Run) -> None:
    result = run("check")
    assert result.exit_code == 0
    assert result.stderr == "gpulint: warning: no Python files found\n"
    assert run("check", "-q").stderr == ""


def test_json_counts_code_points(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(CHINESE, encoding="utf-8")
    [found] = json.loads(run("check", "--output-format", "json").stdout)
    assert found["filename"] == str(tmp_path / "a.py")
    assert found["location"] == {"row": 2, "column": 1}
    assert found["fix"]["edits"] == [
        {
            "content": "fast_copy",
            "cell": None,
            "location": {"row": 2, "column": 1},
            "end_location": {"row": 2, "column": 10},
        }
    ]


def test_suppressed_findings_are_in_json_only(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("slow_copy()  # ignore\n")
    result = run("check", "--output-format", "json")
    assert [f["suppressed"] for f in json.loads(result.stdout)] == ["inline"]
    assert result.exit_code == 0
    assert run("check").stdout == "All checks passed!\n"


def test_statistics(run: Run, tmp_path: Path) -> None:
    text = "slow_copy()\nslow_math()\nsmall_batch()\n" + "slow_math()\n" * 9
    (tmp_path / "a.py").write_text(text)
    result = run("check", "--statistics", "--select", "ALL")
    assert result.stdout.splitlines()[:3] == [
        "10  GPU301  [**] slow-math",
        " 1  GPU101  [*]  slow-copy",
        " 1  GPU401       small-batch",
    ]
    assert "Found 12 findings" in result.stdout
    assert "Found" not in run("check", "--statistics", "-q").stdout
    rows = json.loads(run("check", "--statistics", "--output-format", "json").stdout)
    assert rows[0] == {
        "code": "GPU301",
        "name": "slow-math",
        "count": 10,
        "fixable": True,
    }


def test_statistics_show_the_easiest_fix(run: Run, tmp_path: Path) -> None:
    for name, allow in (("a", ""), ("b", 'allow = ["numerics"]')):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "a.py").write_text("slow_math()\n")
        (folder / "gpulint.toml").write_text(allow)
    assert "2  GPU301  [*]  slow-math" in run("check", "--statistics").stdout


def test_output_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("slow_copy()\n")
    result = run("check", "-o", "out.txt", "--output-format", "full")
    assert (result.exit_code, result.output) == (1, "")
    written = (tmp_path / "out.txt").read_text("utf-8")
    assert written.startswith("GPU101 slow-copy [*] `slow_copy` is slow\n --> a.py:1:1")
    assert "\x1b" not in written


def test_standard_input(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.gpulint]\nignore = ["GPU303"]')
    result = run(
        "check", "-", "--output-format", "concise", stdin="slow_copy()\nbroken_api()"
    )
    assert result.stdout.splitlines()[0] == "-:1:1: GPU101 [*] `slow_copy` is slow"
    assert "GPU303" not in result.stdout
    form = ("--output-format", "json")
    [found] = json.loads(run("check", "-", *form, stdin="slow_copy()").stdout)
    assert found["filename"] == "-"


def test_standard_input_has_the_settings_of_its_name(run: Run, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "gpulint.toml").write_text('select = ["GPU303"]')
    name = ("--stdin-filename", "sub/new.py")
    result = run("check", "-", *name, stdin="slow_copy()\nbroken_api()\n")
    assert f"--> {Path('sub/new.py')}:2:1" in result.stdout
    assert "GPU101" not in result.stdout


def test_excluded_standard_input_is_not_checked(run: Run) -> None:
    name = ("--stdin-filename", "build/new.py")
    assert run("check", "-", *name, stdin="broken_api()").exit_code == 1
    excluded = run("check", "-", *name, "--force-exclude", stdin="broken_api()")
    assert (excluded.exit_code, excluded.stdout) == (0, "All checks passed!\n")


def test_standard_input_that_is_no_text(run: Run) -> None:
    result = run("check", "-", stdin=b"# \xff\n")
    assert result.exit_code == 1
    assert result.stdout.startswith("GPU000 not-read not utf-8: byte 0xff")


def test_internal_error_on_standard_input(run: Run) -> None:
    result = run("check", "-", stdin="internal_error")
    assert result.exit_code == 2
    assert "internal error" in result.stderr


def test_engine_gets_the_options_of_each_file(
    run: Run, engine: FakeEngine, tmp_path: Path
) -> None:
    (tmp_path / "gpulint.toml").write_text('allow = ["random"]\nignore = ["GPU3"]')
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "gpulint.toml").write_text('torch-version = "2.1"')
    for name in ("a.py", "sub/b.py"):
        (tmp_path / name).touch()
    (tmp_path / "requirements.txt").write_text("torch>=1.13")
    run("check", "--ignore", "small-batch")
    outer = engine.options[tmp_path / "a.py"]
    inner = engine.options[tmp_path / "sub" / "b.py"]
    assert [rule.code for rule in outer.rules] == ["GPU000", "GPU101"]
    assert [rule.code for rule in inner.rules] == [
        "GPU000",
        "GPU101",
        "GPU301",
        "GPU303",
    ]
    assert outer.allow == {Effect.EXACT, Effect.RANDOM}
    assert inner.allow == {Effect.EXACT}
    assert outer.torch_version == (1, 13)
    assert inner.torch_version == (2, 1)


def test_command_line_stands_over_settings(
    run: Run, engine: FakeEngine, tmp_path: Path
) -> None:
    (tmp_path / "gpulint.toml").write_text(
        'select = ["GPU3"]\nignore = ["GPU303"]\nallow = ["random"]\n'
        'output-format = "json"\nfail-level = "error"\ntorch-version = "1.8"\n'
    )
    (tmp_path / "a.py").write_text("slow_copy()\n")
    words = "--select GPU1,GPU303 --allow numerics --fail-level warning"
    result = run("check", *words.split(), "--torch-version", ">=2.2")
    options = engine.options[tmp_path / "a.py"]
    assert [rule.code for rule in options.rules] == ["GPU101", "GPU303"]
    assert options.allow == {Effect.EXACT, Effect.NUMERICS}
    assert options.torch_version == (2, 2)
    assert result.exit_code == 1
    assert result.stdout.startswith("[\n")
    assert run("check", "--isolated", "-q").stdout.startswith("GPU101")


def test_config_holds_for_all_files(run: Run, tmp_path: Path) -> None:
    (tmp_path / "gpulint.toml").write_text('select = ["GPU9"]')
    (tmp_path / "other.toml").write_text('select = ["GPU3"]\nexclude = ["/b.py"]')
    (tmp_path / "a.py").write_text("slow_copy()\nbroken_api()\n")
    (tmp_path / "b.py").write_text("broken_api()\n")
    words = ("check", "--config", "other.toml", "--output-format", "concise", "-q")
    assert run(*words).stdout == "a.py:2:1: GPU303 `broken_api` is slow\n"


def test_unknown_rule_in_settings(run: Run, tmp_path: Path) -> None:
    (tmp_path / "gpulint.toml").write_text('select = ["GPU9"]')
    (tmp_path / "a.py").touch()
    result = run("check")
    assert result.exit_code == 2
    assert "no rule matches 'GPU9'" in result.stderr


def test_verbose_says_what_holds(run: Run, tmp_path: Path) -> None:
    (tmp_path / "gpulint.toml").write_text('torch-version = "2.1"')
    (tmp_path / "a.py").touch()
    stderr = run("check", "-v").stderr
    assert f"1 files; settings: {tmp_path / 'gpulint.toml'}" in stderr
    assert "lowest torch: 2.1" in stderr
    assert "lowest torch: not declared" in run("check", "-v", "--isolated").stderr


def test_folder_that_cannot_be_read(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.scandir", denied)
    result = run("check")
    assert result.exit_code == 2
    assert f"{tmp_path}: Permission denied" in result.stderr


def test_garbage_collector_is_as_it_was(
    run: Run, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "a.py").touch()
    during = []
    checked = engine.check_path

    def noting(path: Path, options: object) -> object:
        during.append(gc.get_threshold())
        return checked(path, options)

    monkeypatch.setattr(engine, "check_path", noting)
    before = gc.get_threshold()
    run("check")
    assert during[0] != before == gc.get_threshold()
    assert gc.get_freeze_count() == 0


def test_reader_that_closes_the_pipe(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(*_: object) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    (tmp_path / "a.py").write_text("slow_copy()\n")
    monkeypatch.setattr("gpulint.report.write", closed)
    result = run("check")
    assert (result.exit_code, result.stderr) == (1, "")


def test_exclude_on_the_command_line(run: Run, tmp_path: Path) -> None:
    for name in ("a.py", "b.py", "build.py", "build/c.py", "gen/d.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("slow_copy()\n")
    (tmp_path / "gpulint.toml").write_text('extend-exclude = ["b.py"]')
    words = ("check", "--output-format", "concise", "-q")

    def names(*more: str) -> list[str]:
        lines = run(*words, *more).stdout.splitlines()
        return [Path(line.partition(":")[0]).as_posix() for line in lines]

    assert names() == ["a.py", "build.py", "gen/d.py"]
    assert names("--exclude", "gen, a.*") == ["build.py", "build/c.py"]
    assert names("--extend-exclude", "/gen", "--extend-exclude", "a.py") == ["build.py"]
