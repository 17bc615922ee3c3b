"""What the processes of a training take of the CPUs and the memory, from `/proc`."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gpulint.runtime._limits import available_cpus, free_memory, ram_limit

PROC = Path("/proc")
SEARCH_SECONDS = 5.0  # between two looks for processes that use CUDA
BUSIEST = 5  # processes to show where no training is known
CUDA_DEVICE = "/dev/nvidia-uvm"  # NVML alone does not open it
ENDED = ("Z", "X")  # states
WORKER_NAME = "pt_data_worker"  # PyTorch names its loaders' workers


@dataclass(frozen=True)
class Process:
    """A process; CPU in percent of one core since the last look, memory in bytes."""

    pid: int
    parent: int
    name: str
    cpu: float | None
    memory: int
    waits: bool = False  # for a disk or a file system of the network
    root: int | None = None  # the training that it belongs to
    worker: bool = False  # of a loader

    @property
    def role(self) -> str:
        """`training`, `worker` of one, or `other`."""
        if self.root is None:
            return "other"
        return "worker" if self.worker else "training"


@dataclass(frozen=True)
class HostFigures:
    """The machine and those processes that matter; None is what it does not tell.

    `cpu` is the part of all CPUs of the machine that is busy, in percent; `cpus` are
    those that may be used here.
    """

    cpus: int
    cpu: float | None = None
    memory_used: int | None = None
    memory_total: int | None = None
    processes: tuple[Process, ...] = ()

    @property
    def roots(self) -> tuple[int, ...]:
        """The first process of each training."""
        return tuple(sorted({p.root for p in self.processes if p.root is not None}))


@dataclass(frozen=True)
class _Entry:
    """A line of `/proc/PID/stat`."""

    parent: int
    session: int
    name: str
    state: str
    ticks: int
    started: int
    pages: int


class Host:
    """Reads the host again and again.

    `root`: the first process of the training; None: those that have CUDA open are
    looked for.
    """

    def __init__(self, root: int | None = None, proc: Path = PROC) -> None:
        self.root, self.proc = root, proc
        self._before: dict[tuple[int, int], int] = {}
        self._workers: dict[tuple[int, int], bool] = {}
        self._at: float | None = None
        self._busy: tuple[int, int] | None = None
        self._found: tuple[int, ...] = ()
        self._searched: float | None = None
        self._tick = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
        self._page = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096

    def read(self) -> HostFigures:
        """The figures since the last call; the first knows nothing of the CPUs."""
        now = time.monotonic()
        entries = dict(_entries(self.proc))
        roots = self._roots(entries, now)
        elapsed = None if self._at is None else max(now - self._at, 1e-6)
        belongs = {pid: root for root in roots for pid in _family(root, entries)}
        every = [
            self._process(pid, entry, elapsed, belongs.get(pid))
            for pid, entry in entries.items()
        ]
        self._before = {(pid, e.started): e.ticks for pid, e in entries.items()}
        kept = self._workers.keys() & self._before.keys()
        self._workers = {key: self._workers[key] for key in kept}
        self._at = now
        its = [p for p in every if p.root is not None]
        if not roots:
            us = os.getpid()
            known = [
                p for p in every if p.cpu and p.memory and us not in (p.pid, p.parent)
            ]
            its = sorted(known, key=lambda p: -(p.cpu or 0))[:BUSIEST]
        total, free = ram_limit(), free_memory()
        used = None if total is None or free is None else max(total - free, 0)
        ordered = tuple(sorted(its, key=lambda p: (p.root or 0, -(p.cpu or 0), p.pid)))
        return HostFigures(available_cpus(), self._machine(), used, total, ordered)

    def _roots(self, entries: dict[int, _Entry], now: float) -> tuple[int, ...]:
        if self.root is not None:
            return (self.root,) if self.root in entries else ()
        if self._searched is None or now - self._searched >= SEARCH_SECONDS:
            self._searched = now
            found = {pid for pid in entries if _has_open(self.proc, pid, CUDA_DEVICE)}
            self._found = tuple(sorted(_topmost(found, entries)))
        return tuple(pid for pid in self._found if pid in entries)

    def _process(
        self,
        pid: int,
        entry: _Entry,
        elapsed: float | None,
        root: int | None,
    ) -> Process:
        before = self._before.get((pid, entry.started))
        cpu = None
        if elapsed is not None:
            ticks = entry.ticks - (before or 0)
            cpu = 100 * ticks / self._tick / elapsed if before is not None else None
        return Process(
            pid,
            entry.parent,
            entry.name,
            cpu,
            entry.pages * self._page,
            entry.state == "D",
            root,
            root not in (None, pid) and self._is_worker(pid, entry),
        )

    def _is_worker(self, pid: int, entry: _Entry) -> bool:
        """Whether a process loads for another one, and does not train itself.

        Newer PyTorch names its workers. Older ones are copies of their parent, or were
        spawned as a rank is, which has CUDA open.
        """
        if entry.name == WORKER_NAME:
            return True
        known = self._workers.get((pid, entry.started))
        if known is None:
            words = self._words(pid)
            copied = bool(words) and words == self._words(entry.parent)
            spawned = b"multiprocessing" in words
            known = copied or (spawned and not _has_open(self.proc, pid, CUDA_DEVICE))
            self._workers[pid, entry.started] = known
        return known

    def _words(self, pid: int) -> bytes:
        """The command line of a process."""
        with contextlib.suppress(OSError):
            return (self.proc / str(pid) / "cmdline").read_bytes()
        return b""

    def _machine(self) -> float | None:
        """The busy part of all CPUs since the last call, in percent."""
        try:
            text = (self.proc / "stat").read_text("ascii", errors="replace")
        except OSError:
            return None
        # user nice system idle iowait irq softirq steal; guests are part of user
        counts = [int(word) for word in text.split("\n", 1)[0].split()[1:9]]
        total, idle = sum(counts), sum(counts[3:5])
        before, self._busy = self._busy, (total, idle)
        if before is None or total <= before[0]:
            return None
        return 100 * (1 - (idle - before[1]) / (total - before[0]))


def is_alive(pid: int, proc: Path = PROC) -> bool:
    """Whether there is such a process, and it has not ended."""
    if proc.exists():
        entry = _entry(proc / str(pid))
        return entry is not None and entry.state not in ENDED
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _entries(proc: Path) -> Iterator[tuple[int, _Entry]]:
    for folder in proc.glob("[0-9]*"):
        entry = _entry(folder)
        if entry is not None and entry.state not in ENDED:
            yield int(folder.name), entry


def _entry(folder: Path) -> _Entry | None:
    try:
        text = (folder / "stat").read_text("utf-8", errors="replace")
    except OSError:  # it has ended
        return None
    # "pid (a name with any characters) state parent group session …", see proc(5)
    head, _, tail = text.rpartition(")")
    words = tail.split()
    if len(words) < 22:
        return None
    number = [int(word) for word in words[1:22]]
    return _Entry(
        parent=number[0],
        session=number[2],
        name=head.partition("(")[2],
        state=words[0],
        ticks=number[10] + number[11],
        started=number[18],
        pages=max(number[20], 0),
    )


def _family(root: int, entries: dict[int, _Entry]) -> set[int]:
    """A process and its descendants."""
    children: dict[int, list[int]] = {}
    for pid, entry in entries.items():
        children.setdefault(entry.parent, []).append(pid)
    found, open_ends = {root}, [root]
    while open_ends:
        for pid in children.get(open_ends.pop(), ()):
            if pid not in found:
                found.add(pid)
                open_ends.append(pid)
    return found


def _topmost(pids: Collection[int], entries: dict[int, _Entry]) -> Iterable[int]:
    """Those of the processes that no other of them has started."""
    return (pid for pid in pids if entries[pid].parent not in pids)


def _has_open(proc: Path, pid: int, device: str) -> bool:
    with contextlib.suppress(OSError):  # another user's, or it has ended
        for file in (proc / str(pid) / "fd").iterdir():
            with contextlib.suppress(OSError):
                if str(file.readlink()).startswith(device):
                    return True
    return False
