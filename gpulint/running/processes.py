"""The processes that a child of ours has started: their memory, and their end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

PROC = Path("/proc")


@contextlib.contextmanager
def started(
    words: Sequence[str], environment: Mapping[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """A process without input, its output in a file; ended with all that it started."""
    with log.open("wb") as output:
        child = subprocess.Popen(
            words,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for us; its workers are its own
        )
        try:
            yield child
        finally:
            end(child.pid)
            child.wait()


def family(root: int, proc: Path = PROC) -> list[int]:
    """A process, its descendants, and all others in its session."""
    parents = dict(_stats(proc))
    found = {root}
    while True:
        more = {
            pid
            for pid, (parent, session) in parents.items()
            if pid not in found and (parent in found or session == root)
        }
        if not more:
            return sorted(found)
        found |= more


def memory(pids: list[int], proc: Path = PROC) -> int | None:
    """The bytes of host memory that processes hold together; None: not on Linux.

    Pages that several of them share, as forked workers do, count once.
    """
    held = [n for pid in pids if (n := _proportional(proc / str(pid))) is not None]
    return sum(held) if held else None


def end(root: int) -> None:
    """Kill a child that leads its own group, and all that belongs to it, at once.

    Without a warning: the script would save what it has hardly begun to learn.
    """
    members = family(root)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(root, signal.SIGKILL)
    for pid in members:
        if pid == root:  # killed with its group; the number may be another's by now
            continue
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _stats(proc: Path) -> Iterator[tuple[int, tuple[int, int]]]:
    for entry in proc.glob("[0-9]*"):
        try:
            text = (entry / "stat").read_text("utf-8", errors="replace")
        except OSError:  # it has ended
            continue
        # "pid (a name with any characters) state parent group session …"
        fields = text.rpartition(")")[2].split()
        yield int(entry.name), (int(fields[1]), int(fields[3]))


def _proportional(entry: Path) -> int | None:
    try:
        lines = (entry / "smaps_rollup").read_text("ascii").splitlines()
        return next(
            int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")
        )
    except (OSError, ValueError, StopIteration):
        pass
    try:
        _, resident, shared = (entry / "statm").read_text("ascii").split()[:3]
        return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None
