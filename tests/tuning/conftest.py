"""Scripts to tune, and processes in which they find a small torch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tuning_helpers import REPO, Start, Write, alive

FAKE = Path(__file__).parent.parent / "fake_torch"


@pytest.fixture(autouse=True)
def _fake_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Children import the small torch, unless a test says otherwise."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(FAKE), str(REPO)]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for name in list(os.environ):
        if name.startswith("GPULINT_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a script `train.py` into the test's folder, which is the current one."""

    def make(text: str) -> Path:
        script = tmp_path / "train.py"
        script.write_text(text, encoding="utf-8")
        return script

    return make


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Start Python in the test's folder."""

    def begin(*words: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        # A shell ignores SIGINT for what it runs in the background: these tests too.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return subprocess.Popen(
                [sys.executable, *words], stdout=pipe, stderr=pipe, text=True
            )
        finally:
            signal.signal(signal.SIGINT, before)

    return begin


@pytest.fixture
def kill_later() -> Iterator[list[int]]:
    """Processes that must not outlive a test that fails."""
    pids: list[int] = []
    yield pids
    for pid in filter(alive, pids):
        os.kill(pid, signal.SIGKILL)
