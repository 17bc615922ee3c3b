"""`check --new-only-since`: what git says has changed, and what that makes new."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import gpulint
from gpulint.cli import main
from gpulint.files import run_git

Git = Callable[..., str]

OLD = """\
import torch
from torch.utils.data import DataLoader


def train(data, model, optimizer):
    device = torch.device("cuda")
    loader = DataLoader(
        data,
        batch_size=64, num_workers=2,
        pin_memory=True,
    )
    for batch in loader:
        with torch.cuda.amp.autocast():
            loss = model(batch.to(device, non_blocking=True))
        loss.backward()
        optimizer.step()
"""
PROJECTS = Path(gpulint.__file__).resolve().parent.parent / "fixtures" / "projects"
CODES = ("--select", "GPU000,GPU202,GPU303")


@pytest.fixture(autouse=True)
def _repository(tmp_path: Path, git: Git, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit with one finding, GPU303."""
    monkeypatch.chdir(tmp_path)
    git("init", "-q", "-b", "main")
    git("config", "user.email", "a@b.c")
    git("config", "user.name", "A")
    (tmp_path / "train.py").write_text(OLD)
    git("add", ".")
    git("commit", "-qm", "old")


def run(*words: str) -> Result:
    return CliRunner().invoke(
        main, ["check", "--no-cache", "--output-format", "concise", *words]
    )


def new(*words: str, since: str = "main") -> list[str]:
    """`path:row code` of what is reported."""
    result = run("--new-only-since", since, *(words or CODES))
    assert result.exit_code in (0, 1), result.output
    lines = [line for line in result.stdout.splitlines() if ": GPU" in line]
    assert result.exit_code == bool(lines)
    return [
        " ".join((place.rpartition(":")[0], said.split()[0]))
        for place, _, said in (line.partition(": ") for line in lines)
    ]


def write(path: str, text: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text, "utf-8", newline="")


def test_what_is_old_is_silent() -> None:
    assert run(*CODES).exit_code == 1
    assert new() == []
    write("train.py", "# moved\n\n\n" + OLD + "\n# the end\n")
    assert new() == []


def test_lines_that_changed(git: Git) -> None:
    amp = "        with torch.cuda.amp.autocast():\n"
    write("train.py", OLD.replace(amp, amp.replace("()", "(enabled=True)")))
    assert new() == ["train.py:13 GPU303"]
    git("checkout", "-qb", "work")
    git("commit", "-qam", "changed")
    assert new() == ["train.py:13 GPU303"]
    assert new(since="HEAD") == []
    git("add", ".")
    assert new(since="main~0") == ["train.py:13 GPU303"]


def test_a_line_that_is_gone_from_a_statement() -> None:
    write("train.py", OLD.replace("        pin_memory=True,\n", ""))
    assert new() == ["train.py:7 GPU202"]


def test_a_line_that_is_gone_beside_a_statement() -> None:
    text = OLD.replace('    device = torch.device("cuda")\n', '    device = "cuda"\n')
    write("train.py", text.replace("\n\n\ndef", "\n\ndef"))
    assert new() == []


def test_another_line_of_the_same_statement() -> None:
    text = OLD.replace("pin_memory=True", "pin_memory=False")
    write("train.py", text)
    assert new() == ["train.py:7 GPU202"]


def test_the_merge_base_counts_and_not_the_tip(git: Git) -> None:
    git("checkout", "-qb", "work")
    write("other.py", OLD)
    git("add", ".")
    git("commit", "-qm", "work")
    git("checkout", "-q", "main")
    write("train.py", OLD.replace("64", "32"))
    git("commit", "-qam", "main went on")
    git("checkout", "-q", "work")
    assert new() == ["other.py:13 GPU303"]


def test_untracked_staged_and_ignored_files(git: Git) -> None:
    write("untracked.py", OLD)
    write("staged.py", OLD)
    git("add", "staged.py")
    write(".gitignore", "ignored.py\n")
    write("ignored.py", OLD)
    assert new() == ["staged.py:13 GPU303", "untracked.py:13 GPU303"]
    assert new("ignored.py", *CODES) == ["ignored.py:13 GPU303"]


def test_a_file_that_git_was_told_to_forget(git: Git) -> None:
    git("rm", "-q", "--cached", "train.py")
    assert new() == ["train.py:13 GPU303"]


def test_renamed_files(git: Git) -> None:
    git("mv", "train.py", "moved.py")
    assert new() == []
    write("moved.py", OLD.replace("pin_memory=True", "pin_memory=False"))
    assert new() == ["moved.py:7 GPU202"]


@pytest.mark.parametrize(
    "name",
    ["a b.py", "数据/训练 模型.py", 'quo"te.py', "tab\there.py", "back\\slash.py"],
)
@pytest.mark.parametrize(
    "setting", [("core.quotePath", "true"), ("diff.noprefix", "1")]
)
def test_names_that_git_quotes(git: Git, name: str, setting: tuple[str, str]) -> None:
    try:
        write(name, OLD)
    except OSError:
        pytest.skip("the file system takes no such name")
    git("add", ".")
    git("commit", "-qm", "more")
    git("config", *setting)
    git("config", "diff.mnemonicPrefix", "true")
    assert new(since="HEAD") == []
    write(name, OLD.replace("autocast()", "autocast(True)"))
    assert new(since="HEAD") == [f"{name}:13 GPU303"]
    Path(name).rename("renamed 名.py")
    git("add", "-A")
    assert new(since="HEAD") == ["renamed 名.py:13 GPU303"]


def test_text_that_looks_like_the_head_of_a_diff() -> None:
    tricky = "\n++ b/other.py\n-- a/other.py\n@@ -1 +1,9 @@\ndiff --git a/x b/x\n"
    write("train.py", OLD + f'TEXT = """{tricky}"""\n')
    write("other.py", "\n" + OLD)
    assert new() == ["other.py:14 GPU303"]


def test_newlines_of_another_system_and_no_newline_at_the_end(git: Git) -> None:
    git("config", "core.autocrlf", "true")
    crlf = OLD.replace("\n", "\r\n")
    write("train.py", crlf)
    assert new() == []
    write("train.py", crlf.replace("autocast()", "autocast(True)").rstrip())
    assert new() == ["train.py:13 GPU303"]


def test_a_file_that_is_no_python_any_longer() -> None:
    write("train.py", "import torch\n" + OLD + "print(\n")
    assert [line.split()[1] for line in new()] == ["GPU000"]


def test_a_broken_file_that_nobody_touched(git: Git) -> None:
    write("train.py", "import torch\nprint(\n")
    git("commit", "-qam", "broken")
    assert new(since="HEAD") == []


@pytest.mark.parametrize(
    "name,old,text,told",
    [
        ("settings/train.yaml", "batch_size: 32", "batch_size: 64", False),
        ("settings/train.yaml", "workers: 0", "workers:  0", True),
        ("train.py", "FOLDER =", "FOLDER  =", False),
        ("train.py", "DataLoader(", "DataLoader( ", True),  # the loader it is for
        ("data.py", "Image.open(", "Image.open( ", True),  # the reason for it
    ],
)
def test_a_finding_in_settings_and_what_it_rests_on(
    git: Git, tmp_path: Path, name: str, old: str, text: str, told: bool
) -> None:
    shutil.copytree(PROJECTS / "yaml_load", tmp_path, dirs_exist_ok=True)
    git("add", ".")
    git("commit", "-qm", "project")
    assert new("--select", "GPU901", since="HEAD") == []
    changed = (tmp_path / name).read_text("utf-8").replace(old, text)
    (tmp_path / name).write_text(changed)
    expected = ["settings/train.yaml:3 GPU901"] if told else []
    assert new("--select", "GPU901", since="HEAD") == expected


def test_from_a_folder_below(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write("inner/a.py", OLD)
    monkeypatch.chdir(tmp_path / "inner")
    assert new() == ["a.py:13 GPU303"]
    assert sorted(new("..", *CODES)) == ["a.py:13 GPU303"]


def test_through_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        (tmp_path.parent / "link").symlink_to(tmp_path)
    except OSError:
        pytest.skip("no links here")
    write("new.py", OLD)
    assert len(new("../link/new.py", *CODES)) == 1
    assert new("../link/train.py", *CODES) == []
    (tmp_path.parent / "link").unlink()


@pytest.mark.parametrize("reference", ["nowhere", "", "--all", "-x", "main:train.py"])
def test_no_such_commit(reference: str) -> None:
    result = run(f"--new-only-since={reference}")
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert f"git knows no commit {reference!r}" in result.stderr


def test_what_git_cannot_compare(
    git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git("checkout", "-q", "--orphan", "alone")
    git("commit", "-qm", "alone")
    result = run("--new-only-since", "main")
    assert result.exit_code == 2
    assert "'main' and HEAD share no commit" in result.stderr
    monkeypatch.setattr(
        "gpulint.cli.since.run_git",
        lambda root, *words: None if "diff" in words else run_git(root, *words),
    )
    result = run("--new-only-since", "alone")
    assert result.exit_code == 2
    assert "git cannot compare" in result.stderr


def test_no_repository_no_git_and_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(tmp_path / ".git")
    result = run("--new-only-since", "main")
    assert result.exit_code == 2
    assert (
        result.stderr
        == "gpulint: error: --new-only-since: . lies in no git repository\n"
    )
    (tmp_path / ".git").mkdir()
    assert run("--new-only-since", "main").exit_code == 2
    monkeypatch.setenv("PATH", "")
    result = run("--new-only-since", "main")
    assert (result.exit_code, "git is not installed" in result.stderr) == (2, True)
    assert run("--new-only-since", "main", "-").exit_code == 2
