"""Several processes find and keep what one does, and outlive each other."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import shutil
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner

import gpulint.engine
from gpulint.cli import main, pool
from gpulint.engine import Checked, Options

FIXTURES = Path(__file__).parents[2] / "fixtures"
ALONE = (
    *("gpu102_blocking_transfer/bad.py", "gpu102_blocking_transfer/buffer.py"),
    *("gpu102_blocking_transfer/good.py", "gpu102_blocking_transfer/helper.py"),
    *("gpu203_restarting_workers/bad.py", "gpu203_restarting_workers/phases.py"),
    *("gpu203_restarting_workers/wrapped.py", "gpu203_restarting_workers/option.py"),
)
FORMATS = ("full", "json", "sarif")
Said = tuple[int, str, str]
check_path = gpulint.engine.check_path
check_module = importlib.import_module("gpulint.cli.check")  # not the command


@pytest.fixture(autouse=True)
def project(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Some scripts that belong together, some that stand alone, one that is broken."""
    monkeypatch.delenv("GPULINT_NO_CACHE")
    monkeypatch.setattr("gpulint.cache.stamps.MARGIN", 0)
    shutil.copytree(FIXTURES / "projects" / "callers_elsewhere", tmp_path / "callers")
    for script in ALONE:
        (tmp_path / script).parent.mkdir(exist_ok=True)
        shutil.copy(FIXTURES / script, tmp_path / script)
    (tmp_path / "broken.py").write_text("import torch\nx = (\n")
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes are copies of this one, with what a test has put into it."""
    fork = multiprocessing.get_context("fork")
    monkeypatch.setattr(pool, "_context", lambda: fork)


def check(*options: str) -> Said:
    result = CliRunner().invoke(main, ["check", *options], catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize("form", FORMATS)
def test_several_processes_find_what_one_does(form: str) -> None:
    options = ("--output-format", form, "--no-cache", "--select", "ALL")
    alone = check(*options, "--jobs", "1")
    assert "GPU203" in alone[1]
    assert "GPU000" in alone[1]
    assert check(*options, "--jobs", "3") == alone


def test_processes_that_are_no_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows and macOS, and where this process has threads."""
    spawn = multiprocessing.get_context("spawn")
    monkeypatch.setattr(pool, "_context", lambda: spawn)
    options = ("--no-cache", "--ignore", "GPU102", "--output-format", "concise")
    assert check(*options, "-j", "2") == check(*options, "-j", "1")


def test_processes_that_are_done_are_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is left may complain on standard error when this process ends."""
    waits: list[bool] = []

    class Pool(ProcessPoolExecutor):
        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            waits.append(wait)
            super().shutdown(wait, cancel_futures=cancel_futures)

    monkeypatch.setattr(pool, "ProcessPoolExecutor", Pool)
    assert check("--no-cache", "--jobs", "2")[0] == 1
    assert waits[0]


def test_threads_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool.sys, "platform", "linux")
    monkeypatch.setattr(pool.threading, "active_count", lambda: 2)
    assert pool._context().get_start_method() == "spawn"


def test_what_they_find_is_kept(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = check("--jobs", "2")
    looked: list[str] = []

    def look(path: Path, options: Options) -> Checked:
        looked.append(path.name)
        return check_path(path, options)

    monkeypatch.setattr(gpulint.engine, "check_path", look)
    assert check("--jobs", "1") == first
    assert looked == []
    maker = next(p for p in project.glob("callers/*.py") if "def " in p.read_text())
    maker.write_text(maker.read_text() + "\n# changed\n")
    looked.clear()
    assert check("--jobs", "1") == check("--no-cache", "--jobs", "1")
    assert maker.name in looked


@pytest.mark.usefixtures("copied")
def test_an_internal_error_stops_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path, options: Options) -> Checked:
        if path.name == "good.py":
            raise LookupError("of this test")
        return check_path(path, options)

    monkeypatch.setattr(gpulint.engine, "check_path", fail)
    alone = check("--no-cache", "--jobs", "1")
    assert alone[0] == 2
    assert alone[2].count("of this test") == 1
    assert check("--no-cache", "--jobs", "2") == alone


@pytest.mark.usefixtures("copied")
def test_a_process_that_dies_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = check("--no-cache", "--jobs", "1")
    here = os.getpid()

    def die(path: Path, options: Options) -> Checked:
        if os.getpid() != here:
            os._exit(1)
        return check_path(path, options)

    monkeypatch.setattr(gpulint.engine, "check_path", die)
    assert check("--no-cache", "--jobs", "2") == alone


@pytest.mark.parametrize("given", ["0", "-2", "many", "1.5"])
def test_a_number_that_is_none(given: str) -> None:
    code, _, said = check("--jobs", given)
    assert code == 2
    assert "--jobs" in said
    assert "whole number" in said


@pytest.mark.parametrize(
    "settings, options, many, number",
    [
        ("", (), 1000, []),
        ("", (), 10, [None]),
        ("jobs = 2", (), 1000, [2]),
        ("jobs = 1", (), 10, []),
        ('jobs = "auto"', (), 10, [None]),
        ("jobs = 2", ("--jobs", "3"), 1000, [3]),
        ("jobs = 2", ("--jobs", "auto"), 1000, []),
    ],
)
def test_who_says_how_many(
    settings: str,
    options: tuple[str, ...],
    many: int,
    number: list[int | None],
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (project / "gpulint.toml").write_text(f"{settings}\n")
    asked: list[int | None] = []

    def processes(asked_for: int | None, files: int) -> int:
        asked.append(asked_for)
        return 1

    monkeypatch.setattr(check_module, "MANY_FILES", many)
    monkeypatch.setattr(pool, "processes", processes)
    assert check("--no-cache", *options)[0] == 1
    assert asked == number


def test_a_setting_that_is_no_number(project: Path) -> None:
    (project / "gpulint.toml").write_text("jobs = true\n")
    code, _, said = check()
    assert code == 2
    assert "expected a whole number from 1 on, or auto, found True" in said


@pytest.mark.parametrize(
    "asked, files, cpus, number",
    [
        (None, 10_000, 2, 2),
        (None, 10_000, 1, 1),
        (None, 100_000, 96, pool.MOST_PROCESSES),
        (4, 10, 2, 4),
        (4, 3, 2, 3),
        (4, 0, 2, 1),
        (1, 100_000, 16, 1),
    ],
)
def test_how_many_pay(
    asked: int | None,
    files: int,
    cpus: int,
    number: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "available_cpus", lambda: cpus)
    assert pool.processes(asked, files) == number
