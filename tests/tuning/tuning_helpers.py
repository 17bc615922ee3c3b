"""What tests of processes share."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import gpulint

REPO = Path(gpulint.__file__).resolve().parent.parent
Write = Callable[[str], Path]
Start = Callable[..., "subprocess.Popen[str]"]


def alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be collected does not."""
    try:
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8")
    except (ProcessLookupError, FileNotFoundError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def wait_for(what: Callable[[], object], seconds: float = 20.0) -> None:
    """Wait until something holds."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)
