"""What `gpulint fix` rewrites, refuses and prints."""

from __future__ import annotations

import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import FakeEngine, Run

from gpulint.engine import Fixed, Options

Git = Callable[..., str]


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """One finding of each kind."""
    path = tmp_path / "a.py"
    path.write_text("slow_copy()\nslow_math()\nsmall_batch()\nbroken_api()\n")
    return path


def test_rewrites_and_says_what_remains(run: Run, script: Path) -> None:
    result = run("fix", "a.py")
    assert result.exit_code == 1
    assert script.read_text().splitlines()[:2] == ["fast_copy()", "slow_math()"]
    assert result.stdout.splitlines() == [
        "a.py:1:1: GPU101 fixed: Write `fast_copy`",
        "a.py:2:1: GPU301 [**] `slow_math` is slow",
        "a.py:3:1: GPU401 `small_batch` is slow",
        "a.py:4:1: GPU303 `broken_api` is slow",
        "Fixed 1 finding in 1 file",
        "Remaining: 3 findings in 1 file (1 error, 1 warning, 1 note)",
        "[**] 1 with `--allow numerics`   2 shown only",
    ]
    assert "Fixed" not in run("fix", "-q").stdout


def test_second_run_changes_nothing(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "a.py"
    script.write_text("slow_copy()\n")
    script.chmod(0o755)
    assert run("fix").exit_code == 0
    before = script.stat()
    assert stat.S_IMODE(before.st_mode) == 0o755
    result = run("fix", "--exit-non-zero-on-fix")
    assert (result.exit_code, result.stdout) == (0, "All checks passed!\n")
    assert script.stat().st_mtime_ns == before.st_mtime_ns


def test_a_fix_that_another_file_makes_possible(run: Run, tmp_path: Path) -> None:
    first, second = tmp_path / "a.py", tmp_path / "b.py"
    first.write_text("asleep_copy()\n")
    assert "Fixed" not in run("fix", "a.py").stdout
    second.write_text("slow_copy()\n")
    assert "Fixed 2 findings in 2 files" in run("fix").stdout
    assert first.read_text() == second.read_text() == "fast_copy()\n"


def test_fixes_that_wake_each_other_without_end_are_an_error(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def grow(_: FakeEngine, fixed: Fixed, options: Options) -> Fixed:
        return fixed._replace(text=f"{fixed.text}#\n")

    monkeypatch.setattr(FakeEngine, "fix_again", grow)
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("slow_copy()\n")
    result = run("fix")
    assert result.exit_code == 2
    assert "without end" in result.stderr


def test_a_fix_in_another_project_is_no_reason(run: Run, tmp_path: Path) -> None:
    for name, text in (("x", "asleep_copy()\n"), ("y", "slow_copy()\n")):
        (tmp_path / name / ".git").mkdir(parents=True)
        (tmp_path / name / "a.py").write_text(text)
    assert "Fixed 1 finding in 1 file" in run("fix").stdout
    assert (tmp_path / "x" / "a.py").read_text() == "asleep_copy()\n"


def test_diff_writes_nothing_and_applies(
    run: Run, script: Path, tmp_path: Path
) -> None:
    before = script.read_bytes()
    result = run("fix", "--diff")
    assert script.read_bytes() == before
    assert result.stdout.startswith("--- a.py\n+++ a.py\n@@ -1,4 +1,4 @@\n-slow_copy()")
    assert result.stderr == "Would fix 1 finding in 1 file\n"
    assert run("fix", "--diff", "-q").stderr == ""
    apply(result.stdout_bytes, tmp_path)
    assert script.read_text().startswith("fast_copy()\nslow_math()")
    again = run("fix", "--diff")
    assert (again.exit_code, again.stdout) == (0, "")
    assert again.stderr == "Nothing to fix\n"


def test_frequent_lines_are_no_part_of_a_diff(run: Run, tmp_path: Path) -> None:
    """In a file of more than 200 lines, of which one stands there often."""
    rows = "x = 0\ny = 1\n" * 200
    text = f"{rows}slow_copy()\n{rows}slow_copy()\n{rows}"
    (tmp_path / "a.py").write_text(text)
    diff = run("fix", "--diff").stdout.splitlines()
    assert sum(line[:1] in "+-" for line in diff) == 2 + 2 * 2


@pytest.mark.parametrize(
    "data",
    [
        "# -*- coding: gbk -*-\nslow_copy('数据')\n".encode("gbk"),
        b"\xef\xbb\xbfslow_copy()\r\nx = 1\r\n",
        b"x = 1\n\x0cslow_copy()\n\x0cy = 2\n",
        b"slow_copy()",
        b"x = '''\rslow_copy()\r'''\n",
    ],
    ids=["gbk", "bom-crlf", "form-feed", "no-newline", "lone-cr"],
)
def test_diff_is_what_fix_does(run: Run, tmp_path: Path, data: bytes) -> None:
    script = tmp_path / "a.py"
    script.write_bytes(data)
    diff = run("fix", "--diff").stdout_bytes
    assert run("fix").exit_code == 0
    fixed = script.read_bytes()
    assert fixed == data.replace(b"slow", b"fast")
    script.write_bytes(data)
    apply(diff, tmp_path)
    assert script.read_bytes() == fixed


def test_a_diff_of_a_file_with_a_space_in_its_name(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "model copy" / "a b.py"
    script.parent.mkdir()
    script.write_bytes(b"slow_copy()\n")
    diff = run("fix", "--diff").stdout_bytes
    assert diff.startswith(b"--- model copy/a b.py\t\n+++ model copy/a b.py\t\n")
    apply(diff, tmp_path)
    assert script.read_bytes() == b"fast_copy()\n"
    if shutil.which("patch"):
        script.write_bytes(b"slow_copy()\n")
        subprocess.run(["patch", "-p0"], input=diff, cwd=tmp_path, check=True)
        assert script.read_bytes() == b"fast_copy()\n"


def apply(diff: bytes, folder: Path) -> None:
    """Apply a diff as a user would."""
    subprocess.run(
        ["git", "apply", "-p0", "--unsafe-paths", "-"],
        input=diff,
        cwd=folder,
        check=True,
    )


def test_standard_input(run: Run) -> None:
    text = "slow_copy()\r\nslow_math()\r\n"
    result = run("fix", "-", stdin=text.encode())
    assert result.exit_code == 1
    assert result.stdout_bytes == text.replace("slow_copy", "fast_copy").encode()
    assert result.stderr.splitlines()[:2] == [
        "-:1:1: GPU101 fixed: Write `fast_copy`",
        "-:2:1: GPU301 [**] `slow_math` is slow",
    ]


@pytest.mark.parametrize(
    "data,code",
    [(b"", 0), (b"x = 1\n", 0), (b"# \xff\n", 1), (b"internal_error", 2)],
)
def test_standard_input_without_a_fix_comes_back(
    run: Run, data: bytes, code: int
) -> None:
    result = run("fix", "-", stdin=data)
    assert result.exit_code == code
    assert result.stdout_bytes == data


def test_excluded_standard_input_comes_back(run: Run) -> None:
    name = ("--stdin-filename", "build/a.py", "--force-exclude")
    assert run("fix", "-", *name, stdin="slow_copy()\n").stdout == "slow_copy()\n"


def test_diff_of_standard_input(run: Run) -> None:
    result = run("fix", "-", "--diff", "--stdin-filename", "a.py", stdin="slow_copy()")
    assert result.exit_code == 1
    assert result.stdout.startswith("--- a.py\n+++ a.py\n")


@pytest.mark.parametrize("better", ["快"])
def test_text_that_the_encoding_lacks(
    run: Run,
    tmp_path: Path,
    rules: tuple[object, ...],
    monkeypatch: pytest.MonkeyPatch,
    better: str,
) -> None:
    monkeypatch.setattr(type(rules[1]), "better", better)
    data = b"# coding: latin-1\nslow_copy()\n"
    (tmp_path / "a.py").write_bytes(data)
    result = run("fix", "a.py")
    assert result.exit_code == 2
    assert "a.py: not written: 'latin-1' codec" in result.stderr.replace("8859-1", "1")
    assert (tmp_path / "a.py").read_bytes() == data
    stdin = run("fix", "-", stdin=data)
    assert (stdin.exit_code, stdin.stdout_bytes) == (2, data)


def test_unwritable_file_does_not_stop_the_others(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("slow_copy()\n")

    def denied(source: object, text: str) -> None:
        if source.path.name == "a.py":
            raise PermissionError(13, "Permission denied")
        write(source, text)

    from gpulint.source import write_source as write

    monkeypatch.setattr("gpulint.source.write_source", denied)
    result = run("fix")
    assert result.exit_code == 2
    assert result.stderr == (
        f"gpulint: error: {tmp_path / 'a.py'}: not written: Permission denied\n"
    )
    assert (tmp_path / "b.py").read_text() == "fast_copy()\n"
    assert "Fixed 1 finding in 1 file" in result.stdout


def test_undone_fixes_are_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("slow_copy()  # undone\n")
    assert run("fix").stderr == (
        "gpulint: warning: a.py:1:1: GPU101 fix undone: its result does not compile\n"
    )


def test_fixes_that_do_not_end_are_an_error(
    run: Run, tmp_path: Path, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = engine._fix
    monkeypatch.setattr(engine, "_fix", lambda *a: real(*a)._replace(stable=False))
    (tmp_path / "a.py").write_text("slow_copy()\n")
    result = run("fix")
    assert result.exit_code == 2
    assert "a.py: fixes did not come to an end" in result.stderr


class TestUncommittedChanges:
    """Only fixes with an effect are refused, and only where they would be applied."""

    @pytest.fixture(autouse=True)
    def _repository(self, script: Path, git: Git) -> None:
        git("init", "-q")
        git("add", "a.py")
        git("commit", "-qm", "first")

    def test_committed_file_is_rewritten(self, run: Run, script: Path) -> None:
        run("fix", "--allow", "numerics")
        assert "amp_math" in script.read_text()

    @pytest.mark.parametrize("staged", [True, False])
    def test_changed_file_is_refused(
        self, run: Run, script: Path, git: Git, staged: bool
    ) -> None:
        script.write_text(script.read_text() + "x = 1\n")
        if staged:
            git("add", "a.py")
        before = script.read_text()
        result = run("fix", "--allow", "numerics")
        assert result.exit_code == 2
        assert result.stderr == (
            "gpulint: error: a.py: uncommitted changes, and the fixes may change "
            "numerics; commit first, or pass --allow-dirty\n"
        )
        assert script.read_text() == before
        assert run("fix", "--allow", "numerics", "--diff").exit_code == 1
        run("fix", "--allow", "numerics", "--allow-dirty")
        assert "amp_math" in script.read_text()

    def test_exact_fixes_are_applied(self, run: Run, script: Path) -> None:
        script.write_text(script.read_text() + "x = 1\n")
        assert run("fix").exit_code == 1
        assert "fast_copy" in script.read_text()

    def test_untracked_file_is_refused(
        self, run: Run, script: Path, tmp_path: Path
    ) -> None:
        for name in ("b.py", "c.py"):
            (tmp_path / name).write_text("slow_math()\n")
        result = run("fix", "--allow", "all")
        assert result.exit_code == 2
        assert "b.py and 1 more file: uncommitted" in result.stderr
        assert "slow_copy" in script.read_text()

    def test_changed_file_without_such_fixes_is_no_reason(
        self, run: Run, tmp_path: Path, script: Path
    ) -> None:
        (tmp_path / "b.py").write_text("slow_copy()\n")
        run("fix", "--allow", "numerics")
        assert "amp_math" in script.read_text()
        assert (tmp_path / "b.py").read_text() == "fast_copy()\n"

    def test_ignored_file_is_rewritten(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / ".gitignore").write_text("local.py\n")
        (tmp_path / "local.py").write_text("slow_math()\n")
        assert run("fix", "local.py", "--allow", "numerics").exit_code == 0


def test_link_to_a_changed_file_is_refused(run: Run, tmp_path: Path, git: Git) -> None:
    folder = tmp_path / "repository"
    folder.mkdir()
    git("init", "-q", cwd=folder)
    (folder / "a.py").write_text("slow_math()\n")
    (tmp_path / "link.py").symlink_to(folder / "a.py")
    assert run("fix", "link.py", "--allow", "numerics").exit_code == 2
