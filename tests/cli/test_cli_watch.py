"""`gpulint check --watch`: what it sees, what it says, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from fakes import Run

from gpulint import dependencies
from gpulint.cli import watching

REPO = Path(watching.__file__).resolve().parents[2]
Step = Callable[[], object]


@pytest.fixture
def changes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Lets things happen while the command waits; then the user interrupts it."""

    def happen(*steps: Step) -> None:
        left = list(steps)

        def sleep(seconds: float) -> None:
            assert seconds > 0
            if seconds == watching.SETTLING:
                return
            if not left:
                raise KeyboardInterrupt
            left.pop(0)()

        clock = SimpleNamespace(sleep=sleep, monotonic=time.monotonic)
        monkeypatch.setattr(watching, "time", clock)

    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "train.py").write_text("import os\n")
    return happen


def write(path: str, text: str) -> Step:
    def step() -> None:
        Path(path).parent.mkdir(exist_ok=True)
        Path(path).write_text(text)

    return step


WATCH = ("check", "--watch", "--output-format", "concise")
CLEAN = "All checks passed!"


def test_checks_again_when_a_script_changes(
    run: Run, changes: Callable[..., None]
) -> None:
    changes(
        lambda: None,
        write("train.py", "slow_copy()\n"),
        lambda: None,
        Path("train.py").unlink,
        write("new.py", "broken_api()\n"),
    )
    result = run(*WATCH)
    assert result.exit_code == 130
    found = [line for line in result.stdout.splitlines() if ".py:" in line]
    assert found == [
        "train.py:1:1: GPU101 [*] `slow_copy` is slow",
        "new.py:1:1: GPU303 `broken_api` is slow",
    ]
    assert result.stdout.count(CLEAN) == 2  # of the first check, and without scripts
    said = [line for line in result.stderr.splitlines() if "note" in line]
    assert said == [
        "gpulint: note: watching for changes; Ctrl-C ends it",
        "gpulint: note: train.py has changed",
        "gpulint: note: watching for changes; Ctrl-C ends it",
        "gpulint: note: train.py has changed",
        "gpulint: note: watching for changes; Ctrl-C ends it",
        "gpulint: note: new.py has changed",
        "gpulint: note: watching for changes; Ctrl-C ends it",
    ]
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "path",
    ["train.yaml", "conf/x.json", "requirements.txt", "gpulint.toml", "a.ipynb"],
)
def test_other_files_that_count(
    run: Run, changes: Callable[..., None], path: str
) -> None:
    changes(write(path, "{}"))
    result = run(*WATCH)
    assert result.exit_code == 130
    assert f"note: {path} has changed" in result.stderr
    assert result.stderr.count("watching for changes") == 2
    assert result.stderr.count("not TOML") == (".toml" in path)


@pytest.mark.parametrize(
    "path", ["weights.pt", "wandb/x.py", ".git/x.json", "env/x.py", "report.json"]
)
def test_files_that_do_not(run: Run, changes: Callable[..., None], path: str) -> None:
    Path("env").mkdir()
    Path("env/pyvenv.cfg").touch()
    changes(write(path, "x"))
    result = run(*WATCH, "-o", "concise:-", "-o", "json:report.json")
    assert result.exit_code == 130
    assert result.stdout.count(CLEAN) == 1


def test_folders_and_files_that_go_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone.py").symlink_to(tmp_path / "nothing")
    (tmp_path / "a.py").touch()
    disk = watching.Disk([tmp_path, tmp_path / "no"], tmp_path / "x", frozenset())
    assert list(disk.state()) == [str(tmp_path / "a.py")]


def test_editors_that_save_in_steps(
    run: Run, changes: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    changes(write("train.py", ""))
    saved = [write("train.py", "slow"), write("train.py", "slow_copy()\n")]
    clock = watching.time

    def sleep(seconds: float) -> None:
        if seconds == watching.SETTLING and saved:
            saved.pop(0)()
        clock.sleep(seconds)

    both = SimpleNamespace(sleep=sleep, monotonic=time.monotonic)
    monkeypatch.setattr(watching, "time", both)
    result = run(*WATCH)
    assert result.stdout.count(CLEAN) == 1
    assert result.stdout.count("GPU101") == 1


def test_quiet(run: Run, changes: Callable[..., None]) -> None:
    changes(write("train.py", "slow_copy()\n"))
    result = run(*WATCH, "-q")
    assert result.stderr.strip() == ""
    assert result.stdout == "train.py:1:1: GPU101 [*] `slow_copy` is slow\n"


def test_wrong_settings_end_only_the_first_check(
    run: Run, changes: Callable[..., None]
) -> None:
    changes(
        write("gpulint.toml", "selct = []"),
        write("gpulint.toml", ""),
        write("train.py", "slow_copy()\n"),
    )
    result = run(*WATCH)
    assert result.exit_code == 130
    assert result.stderr.count("gpulint: error: ") == 1
    assert "unknown setting `selct`" in result.stderr
    assert "GPU101" in result.stdout
    write("gpulint.toml", "selct = []")()
    result = run(*WATCH)
    assert result.exit_code == 2
    assert "watching" not in result.stderr


def test_settings_elsewhere(
    run: Run, changes: Callable[..., None], tmp_path_factory: pytest.TempPathFactory
) -> None:
    config = tmp_path_factory.mktemp("config") / "own.toml"
    config.write_text('ignore = ["GPU101"]')
    write("train.py", "slow_copy()\n")()
    changes(write(str(config), ""))
    result = run(*WATCH, "--config", config)
    assert (result.stdout.count(CLEAN), result.stdout.count("GPU101")) == (1, 1)


def test_the_whole_project_is_watched(run: Run, changes: Callable[..., None]) -> None:
    changes(write("other/config.yaml", "x: 1\n"))
    result = run(*WATCH, "train.py", ".")
    assert result.stdout.count(CLEAN) == 2


@pytest.mark.parametrize(
    "words", [("-",), ("--add-ignore",), ("--add-noqa", "train.py")]
)
def test_what_cannot_be_watched(run: Run, words: tuple[str, ...]) -> None:
    result = run("check", "-w", *words, stdin="")
    assert result.exit_code == 2
    assert "--watch is for files, and adds no comments" in result.stderr


def test_new_releases_count(
    run: Run, changes: Callable[..., None], tmp_path: Path
) -> None:
    (tmp_path / "requirements.txt").write_text("torch==2.1\n")
    assert dependencies.find_torch_version(tmp_path) is not None
    changes(write("requirements.txt", "torch==2.4\n"))
    result = run("check", "-w", "-v")
    said = [line for line in result.stderr.splitlines() if "lowest torch" in line]
    assert [line.rpartition(" ")[2] for line in said] == ["2.1", "2.4"]


def test_the_screen_is_cleared(
    changes: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    cleared = []
    monkeypatch.setattr(click, "clear", lambda: cleared.append(1))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    changes(write("train.py", "x = 1\n"))
    with pytest.raises(KeyboardInterrupt):
        watching.watch(lambda: None, ["train.py"])
    assert cleared == [1]
    assert "train.py has changed" in capsys.readouterr().err


def test_ctrl_c_ends_a_process(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os\n")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        child = subprocess.Popen(
            [sys.executable, "-m", "gpulint", "check", "--watch"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(REPO)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        signal.signal(signal.SIGINT, before)
    with child:
        try:
            assert child.stderr is not None
            assert "watching for changes" in child.stderr.readline()
            child.send_signal(signal.SIGINT)
            shown, said = child.communicate(timeout=60)
        finally:
            child.kill()
    assert (child.returncode, said.strip()) == (130, "")
    assert shown == "All checks passed!\n"
