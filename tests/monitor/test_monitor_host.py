"""The processes of a training, in a `/proc` that was made up and in the real one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpulint.monitor import host as module
from gpulint.monitor.host import Host, is_alive

TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


class Proc:
    """Writes the files of processes."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(
        self,
        pid: int,
        parent: int,
        name: str = "python",
        ticks: int = 0,
        state: str = "R",
        words: bytes = b"",
        opens: str = "",
    ) -> None:
        folder = self.root / str(pid)
        (folder / "fd").mkdir(parents=True, exist_ok=True)
        fields = [state, parent, pid, pid, *[0] * 7, ticks // 2, ticks - ticks // 2]
        fields += [*[0] * 6, 77, 0, 100]
        text = f"{pid} ({name}) {' '.join(map(str, fields))} 0 0\n"
        (folder / "stat").write_text(text)
        (folder / "cmdline").write_bytes(words)
        link = folder / "fd" / "9"
        link.unlink(missing_ok=True)
        if opens:
            link.symlink_to(opens)

    def machine(self, busy: int, idle: int) -> None:
        (self.root / "stat").write_text(f"cpu  {busy} 0 0 {idle} 0 0 0 0 0 0\ncpu0 1\n")


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that a host sees; a test sets it."""
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def test_a_training_and_its_workers(proc: Proc, clock: list[float]) -> None:
    proc.machine(100, 900)
    proc.put(10, 1, "bash")
    proc.put(11, 10, "python", 500, words=b"python\0train.py")
    proc.put(12, 11, "pt_data_worker", 50, words=b"python\0train.py")
    proc.put(13, 11, "a (b) c", 0, "D")
    proc.put(99, 1, "other", 10**6)
    host = Host(10, proc.root)
    assert host.read().processes[0].cpu is None
    clock[0] += 2
    proc.machine(150, 950)
    proc.put(11, 10, "python", 500 + 2 * TICK, words=b"python\0train.py")
    proc.put(12, 11, "pt_data_worker", 50 + TICK, words=b"python\0train.py")
    found = host.read()
    assert found.cpu == 50.0
    assert found.roots == (10,)
    seen = {p.pid: (p.cpu, p.role, p.name, p.waits) for p in found.processes}
    assert seen == {
        10: (0.0, "training", "bash", False),
        11: (100.0, "training", "python", False),
        12: (50.0, "worker", "pt_data_worker", False),
        13: (0.0, "training", "a (b) c", True),
    }
    assert found.processes[0].pid == 11  # the busiest first
    assert found.processes[0].memory == 100 * PAGE


def test_workers_of_an_older_torch(proc: Proc, clock: list[float]) -> None:
    spawned = b"python\0-c\0from multiprocessing.spawn import spawn_main"
    proc.put(10, 1, words=b"python\0launch.py")
    proc.put(11, 10, words=b"python\0train.py")
    proc.put(12, 11, words=b"python\0train.py")  # forked
    proc.put(13, 11, words=spawned)
    proc.put(14, 11, words=spawned, opens="/dev/nvidia-uvm")  # a rank
    found = Host(10, proc.root).read()
    assert {p.pid for p in found.processes if p.worker} == {12, 13}


def test_what_computes_is_found(proc: Proc, clock: list[float]) -> None:
    proc.put(10, 1, "bash")
    proc.put(11, 10, opens="/dev/nvidia-uvm")
    proc.put(12, 11, "pt_data_worker", opens="/dev/nvidia-uvm")
    proc.put(20, 1, opens="/dev/null")
    host = Host(None, proc.root)
    found = host.read()
    assert found.roots == (11,)
    assert {p.pid for p in found.processes} == {11, 12}
    proc.put(20, 1, opens="/dev/nvidia-uvm")
    assert host.read().roots == (11,)  # not looked for in each sample
    clock[0] += 5
    assert host.read().roots == (11, 20)


def test_without_a_training_the_busiest_are_shown(
    proc: Proc, clock: list[float]
) -> None:
    for pid in range(10, 20):
        proc.put(pid, 1)
    host = Host(None, proc.root)
    assert host.read().processes == ()
    clock[0] += 1
    for pid in range(10, 20):
        proc.put(pid, 1, ticks=pid)
    found = host.read()
    assert [p.pid for p in found.processes] == [19, 18, 17, 16, 15]
    assert {p.role for p in found.processes} == {"other"}
    assert found.roots == ()


def test_a_number_that_another_process_has_taken(
    proc: Proc, clock: list[float]
) -> None:
    proc.put(10, 1, ticks=10**6)
    host = Host(10, proc.root)
    host.read()
    clock[0] += 1
    text = (proc.root / "10" / "stat").read_text().replace(" 77 ", " 78 ")
    (proc.root / "10" / "stat").write_text(text)
    assert host.read().processes[0].cpu is None


def test_those_that_have_ended_are_gone(proc: Proc, clock: list[float]) -> None:
    proc.put(10, 1, state="Z")
    (proc.root / "11").mkdir()
    proc.put(12, 1)
    (proc.root / "12" / "stat").write_text("12 (half a li")
    assert Host(10, proc.root).read().processes == ()
    assert not is_alive(10, proc.root)
    assert not is_alive(11, proc.root)


def test_this_machine() -> None:
    code = "print('ready', flush=True)\nwhile True: pass"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        try:
            host = Host(child.pid)
            host.read()
            found, cpu = host.read(), 0.0
            while not cpu:
                found = host.read()
                cpu = found.processes[0].cpu or 0.0
            assert is_alive(child.pid)
        finally:
            child.kill()
    assert not is_alive(child.pid)
    assert found.roots == (child.pid,)
    assert found.cpus >= 1
    assert found.memory_used is not None


def test_without_proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    away = tmp_path / "away"
    found = Host(None, away).read()
    assert (found.cpu, found.processes) == (None, ())
    assert is_alive(os.getpid(), away)

    def gone(*_: object) -> None:
        raise ProcessLookupError

    def denied(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(module.os, "kill", gone)
    assert not is_alive(1, away)
    monkeypatch.setattr(module.os, "kill", denied)
    assert is_alive(1, away)
