"""`gpulint fix -i`, its reports and copies, and one commit for each rule."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest
from click.testing import CliRunner, Result

import gpulint
from gpulint.cli import main

REPO = Path(gpulint.__file__).resolve().parent.parent
Git = Callable[..., str]
ONE = """\
import torch


def one(model, batch):
    with torch.cuda.amp.autocast():
        return model(batch)


def two(model, batch):
    with torch.cuda.amp.autocast():
        return model(batch)


def three(model, loader, optimizer):
    for images in loader:
        loss = model(images.to("cuda")).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
OLD = "torch.cuda.amp.autocast()"
NEW = 'torch.autocast("cuda", dtype=torch.float16)'
SELECT = ("--select", "GPU102,GPU303")


class Fix(Protocol):
    """Runs `fix` with answers."""

    def __call__(self, *words: str, answers: str = "") -> Result: ...


@pytest.fixture(name="fix")
def _fix(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fix:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gpulint.cli.interactive.is_terminal", lambda: True)

    def call(*words: str, answers: str = "") -> Result:
        lines = "".join(f"{answer}\n" for answer in answers.split())
        return CliRunner().invoke(main, ["fix", *SELECT, *words], input=lines)

    return call


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "a.py"
    path.write_text(ONE)
    return path


def fixed(path: Path) -> str:
    """Which of the three places are rewritten, as digits."""
    parts = path.read_text().split("\ndef ")[1:]
    signs = (NEW, NEW, "non_blocking")
    pairs = zip(parts, signs, strict=True)
    return "".join(str(n) for n, (part, sign) in enumerate(pairs, 1) if sign in part)


@pytest.mark.parametrize(
    "answers,result,asked",
    [
        ("y y y", "123", 3),
        ("n n n", "", 3),
        ("n y n", "2", 3),
        ("y n y", "13", 3),
        ("n y y", "23", 3),
        ("a y", "123", 2),
        ("d y", "3", 2),
        ("f", "123", 1),
        ("n f", "23", 2),
        ("n a y", "23", 3),
        ("y d y", "13", 3),
        ("q", "", 1),
        ("y q", "1", 2),
        ("", "", 1),
        ("y", "1", 2),  # the input ends: as q
        ("Yes NO x ? y", "13", 3),
    ],
)
def test_answers(fix: Fix, script: Path, answers: str, result: str, asked: int) -> None:
    told = fix("-i", answers=answers)
    assert told.exit_code == (0 if result == "123" else 1), told.output
    assert fixed(script) == result
    heads = [line for line in told.stdout.splitlines() if "   effect: " in line]
    assert len(heads) == asked
    compile(script.read_text(), "a.py", "exec")


def test_what_is_shown(fix: Fix, script: Path) -> None:
    told = fix("-i", answers="? q").stdout
    assert told.startswith("\nGPU303 deprecated-amp-api   a.py:5   effect: exact\n")
    assert f"-     with {OLD}:\n+     with {NEW}:\n" in told
    question = (
        "Apply? [y]es [n]o [a]ll GPU303 [d]rop GPU303 [f]ile [e]dit [?]explain [q]uit"
    )
    assert told.count(question) == 2
    assert "## Why" in told


def test_refused_fixes_stay_refused_in_later_passes(fix: Fix, tmp_path: Path) -> None:
    text = ONE.replace("def two(model, batch):\n", "def one(model, batch):\n")
    (tmp_path / "a.py").write_text(text)  # the first two look alike
    told = fix("-i", "--allow", "all", answers="n y y")
    assert told.stdout.count("Apply?") == 3
    assert fixed(tmp_path / "a.py") == "23"


def test_a_file_that_is_edited(
    fix: Fix, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def edit(filename: str) -> None:
        opened.append(filename)
        script.write_text(
            ONE.replace(
                f"two(model, batch):\n    with {OLD}", "two(model, batch):\n    if 1"
            )
        )

    monkeypatch.setattr("click.edit", edit)
    told = fix("-i", answers="y e y")
    assert told.exit_code == 0, told.output
    assert opened == [str(script)]
    assert fixed(script) == "13"
    assert "    if 1:" in script.read_text()
    assert told.stdout.count("Apply?") == 3


def test_an_editor_that_fails(
    fix: Fix, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VISUAL", "false")
    result = fix("-i", answers="e")
    assert result.exit_code == 2
    assert script.read_text() == ONE


def test_other_files_after_the_end(fix: Fix, script: Path, tmp_path: Path) -> None:
    (tmp_path / "b.py").write_text(ONE)
    fix("-i", answers="f q")
    assert fixed(script) == "123"
    assert (tmp_path / "b.py").read_text() == ONE


def test_nobody_to_ask(fix: Fix, script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fix("-i", "-").exit_code == 2
    monkeypatch.undo()
    monkeypatch.chdir(script.parent)
    result = fix("-i")
    assert result.exit_code == 2
    assert result.stderr == (
        "gpulint: error: --interactive needs a terminal (see `main fix --help`)\n"
    )
    assert script.read_text() == ONE


def test_on_a_terminal(script: Path) -> None:
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "gpulint", "fix", *SELECT, "-i"],
        cwd=script.parent,
        stdin=child,
        stdout=child,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(REPO), "TERM": "xterm"},
    )
    os.close(child)
    os.write(parent, b"y\nd\ny\n")
    told = b""
    while True:
        try:
            data = os.read(parent, 4096)
        except OSError:  # the other end is closed
            break
        if not data:
            break
        told += data
    _, errors = process.communicate()
    os.close(parent)
    assert process.returncode == 1, errors
    assert b"\x1b[31m" in told
    assert fixed(script) == "13"


def test_ctrl_c_writes_nothing(
    fix: Fix, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter(["y\n"])

    def read() -> str:
        for answer in answers:
            return answer
        raise KeyboardInterrupt

    class Terminal:
        readline = staticmethod(read)

    monkeypatch.setattr(
        "gpulint.cli.interactive.sys", type("S", (), {"stdin": Terminal})
    )
    assert fix("-i").exit_code == 130
    assert script.read_text() == ONE


def test_the_diff_of_what_was_chosen(fix: Fix, script: Path) -> None:
    told = fix("-i", "--diff", answers="n y n")
    assert told.exit_code == 1
    assert f"+    with {NEW}:" in told.stdout
    assert script.read_text() == ONE


# Reports and copies


def test_a_report(fix: Fix, script: Path, tmp_path: Path) -> None:
    assert fix("--report", "fixes.json").exit_code == 0
    fixes = json.loads((tmp_path / "fixes.json").read_text())
    assert [f["code"] for f in fixes] == ["GPU303", "GPU303", "GPU102"]
    first = fixes[0]
    assert first["filename"] == str(script)
    assert first["location"] == {"row": 5, "column": 10}
    assert (first["effect"], first["name"]) == ("exact", "deprecated-amp-api")
    assert {"title", "message", "fingerprint"} < set(first)
    assert fix("--report", "fixes.json").exit_code == 0
    assert json.loads((tmp_path / "fixes.json").read_text()) == []
    script.write_text(ONE)
    assert fix("--diff", "--report", "fixes.json").exit_code == 1
    assert len(json.loads((tmp_path / "fixes.json").read_text())) == 3
    assert fix("--report", "nowhere/fixes.json").exit_code == 2


def test_copies(fix: Fix, script: Path, tmp_path: Path) -> None:
    script.chmod(0o755)
    assert fix("--backup", ".orig").exit_code == 0
    copy = tmp_path / "a.py.orig"
    assert copy.read_text() == ONE
    assert copy.stat().st_mode & 0o777 == 0o755
    assert script.read_text() != ONE
    assert fix("--backup", ".orig").exit_code == 0
    assert copy.read_text() == ONE  # nothing was rewritten


@pytest.mark.parametrize("suffix", ["", "/x", ".py"])
def test_suffixes_that_name_no_copy(fix: Fix, script: Path, suffix: str) -> None:
    assert fix(f"--backup={suffix}").exit_code == 2
    assert script.read_text() == ONE


def test_no_copy_no_rewriting(fix: Fix, script: Path, tmp_path: Path) -> None:
    (tmp_path / "a.py.orig").mkdir()
    (tmp_path / "a.py.orig" / "a.py").mkdir()
    result = fix("--backup", ".orig")
    assert result.exit_code == 2
    assert "not written" in result.stderr
    assert script.read_text() == ONE


# Commits


@pytest.fixture
def repository(git: Git, script: Path) -> Git:
    git("init", "-q", "-b", "main")
    git("config", "user.email", "a@b.c")
    git("config", "user.name", "A")
    git("add", ".")
    git("commit", "-qm", "old")
    return git


def test_one_commit_for_each_rule(
    fix: Fix, script: Path, repository: Git, tmp_path: Path
) -> None:
    (tmp_path / "b 数据.py").write_text(ONE)
    repository("add", ".")
    repository("commit", "-qm", "more")
    (tmp_path / "notes.txt").write_text("mine")
    result = fix("--commit-per-rule", "--exit-non-zero-on-fix")
    assert result.exit_code == 1, result.output
    subjects = repository("log", "--format=%s").splitlines()
    assert subjects == [
        "Fix GPU303 deprecated-amp-api",
        "Fix GPU102 blocking-transfer",
        "more",
        "old",
    ]
    assert repository("status", "--porcelain").split() == ["??", "notes.txt"]
    assert "Fixed 6 findings in 2 files" in result.stdout
    repository("checkout", "-q", "HEAD~1")
    assert fixed(script) == "3"
    repository("checkout", "-q", "main")
    together = script.read_text()
    script.write_text(ONE)
    assert fix().exit_code == 0
    assert script.read_text() == together
    before = repository("rev-parse", "HEAD")
    assert fix("--commit-per-rule").exit_code == 0
    assert repository("rev-parse", "HEAD") == before


def test_commits_of_what_was_chosen(fix: Fix, script: Path, repository: Git) -> None:
    result = fix("--commit-per-rule", "-i", answers="n n y")
    assert result.exit_code == 1
    assert repository("log", "--format=%s").splitlines() == [
        "Fix GPU303 deprecated-amp-api",
        "old",
    ]
    assert fixed(script) == "2"


@pytest.mark.parametrize("change", ["a.py", "other.txt"])
def test_a_work_tree_with_changes(
    fix: Fix, repository: Git, tmp_path: Path, change: str
) -> None:
    (tmp_path / "other.txt").write_text("x")
    repository("add", ".")
    repository("commit", "-qm", "more")
    with (tmp_path / change).open("a") as file:
        file.write("# changed\n")
    before = (tmp_path / "a.py").read_text()
    result = fix("--commit-per-rule")
    assert result.exit_code == 2
    assert "has uncommitted changes; commit first" in result.stderr
    assert (tmp_path / "a.py").read_text() == before


def test_files_that_git_does_not_know(
    fix: Fix, repository: Git, tmp_path: Path
) -> None:
    (tmp_path / "new.py").write_text(ONE)
    result = fix("--commit-per-rule")
    assert result.exit_code == 2
    assert "new.py is not under version control yet" in result.stderr
    assert (tmp_path / "a.py").read_text() == ONE


def test_no_repository_and_other_misuse(fix: Fix, script: Path, tmp_path: Path) -> None:
    result = fix("--commit-per-rule")
    assert result.exit_code == 2
    assert "lies in no git repository" in result.stderr
    assert fix("--commit-per-rule", "--diff").exit_code == 2
    assert fix("--commit-per-rule", "-").exit_code == 2
    (tmp_path / ".git").mkdir()
    assert "git cannot read" in fix("--commit-per-rule").stderr
    assert script.read_text() == ONE


def test_a_hook_that_refuses(fix: Fix, repository: Git, tmp_path: Path) -> None:
    hook = tmp_path / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho no commits today >&2\nexit 1\n")
    hook.chmod(0o755)
    result = fix("--commit-per-rule")
    assert result.exit_code == 2
    assert "git commit failed in" in result.stderr
    assert "its files are rewritten: no commits today" in result.stderr


def test_a_file_that_cannot_be_written(
    fix: Fix, script: Path, repository: Git, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("gpulint.source.replace_file", refuse)
    result = fix("--commit-per-rule")
    assert result.exit_code == 2
    assert repository("log", "--format=%s").splitlines() == ["old"]
