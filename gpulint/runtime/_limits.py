"""Count the CPUs, memory and shared memory that this process may use."""

from __future__ import annotations

import math
import os
from pathlib import Path

from ._cgroups import cpu_quota, memory_left, memory_limit
from ._ranks import env_count, slurm_tasks_per_node

SYSTEM_ROOT = Path("/")


def available_cpus(*, root: Path = SYSTEM_ROOT) -> int:
    """Return how many CPUs this process may use, at least 1.

    The lowest of: the CPUs it may be scheduled on, the control group's quota rounded
    up, and `SLURM_CPUS_PER_TASK`, which SLURM enforces only with some plugins. The
    machine's own number is far too high in a container. `root` stands for `/`.
    """
    counts = [_schedulable_cpus()]
    quota = cpu_quota(root)
    if quota is not None:
        counts.append(math.ceil(quota))
    per_task = env_count("SLURM_CPUS_PER_TASK")
    if per_task:
        counts.append(per_task)
    return max(1, min(counts))


def cpus_per_rank(cpus: int, ranks: int) -> int:
    """Return one rank's share of the CPUs that `available_cpus` counted.

    With `SLURM_CPUS_PER_TASK` that count belongs to one task already, so only the
    ranks inside that task share it (one under srun, several under torchrun).
    """
    if env_count("SLURM_CPUS_PER_TASK"):
        ranks = max(1, ranks // max(1, slurm_tasks_per_node() or 1))
    return cpus // max(1, ranks)


def ram_limit(*, root: Path = SYSTEM_ROOT) -> int | None:
    """Return the bytes of memory this process may use, None where unknown."""
    limits = [n for n in (_physical_memory(), memory_limit(root)) if n is not None]
    return min(limits, default=None)


def free_memory(*, root: Path = SYSTEM_ROOT) -> int | None:
    """Return the bytes of memory that are free for this process, None where unknown.

    The lower of what the machine has left, files in memory not counted, and what the
    control group has.
    """
    free, available = memory_left(root), _machine_left(root)
    if free is None or available is None:
        return available if free is None else free
    return min(free, available)


def ram_available(*, root: Path = SYSTEM_ROOT) -> int | None:
    """Return the bytes that processes of this control group could have in all.

    What the machine could still give, this process's own share, and no more than the
    group's limit. None where the machine does not say (it is not Linux).
    """
    available = _machine_left(root)
    try:
        own = int((root / "proc/self/statm").read_text("ascii").split()[1])
        own *= os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return None
    if available is None:
        return None
    limit = memory_limit(root)
    return available + own if limit is None else min(available + own, limit)


def _machine_left(root: Path) -> int | None:
    """Bytes that the machine could give to new processes; Linux alone says it."""
    try:
        lines = (root / "proc/meminfo").read_text("ascii").splitlines()
        free = next(line.split()[1] for line in lines if line.startswith("MemAvail"))
        return int(free) * 1024
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def shm_free(*, root: Path = SYSTEM_ROOT) -> int | None:
    """Return the free bytes of `/dev/shm`, None where there is none.

    Workers hand their batches over through it; Docker gives it 64 MiB by default.
    """
    try:
        status = os.statvfs(root / "dev/shm")
    except (OSError, AttributeError):
        return None
    return status.f_bavail * status.f_frsize


def _schedulable_cpus() -> int:
    process_cpu_count = getattr(os, "process_cpu_count", None)  # Python 3.13
    if process_cpu_count is not None:
        return process_cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _physical_memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
