"""Read the CPU and memory limits that control groups set on this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

# A v1 controller's folder, and version 2's (beside v1 it is called "unified").
CPU_FOLDERS = ("cpu", "cpu,cpuacct", "cpuacct,cpu")
MEMORY_FOLDERS = ("memory",)
UNIFIED_FOLDERS = ("", "unified")


def cpu_quota(root: Path) -> float | None:
    """Return the CPUs that the tightest quota allows, None without one.

    A quota is enforced on a group and all its descendants, so each ancestor counts.
    """
    quotas: list[float] = []
    for group in _unified_groups(root):
        quotas += _v2_quota(group)
    for group in _v1_groups(root, "cpu", CPU_FOLDERS):
        quotas += _v1_quota(group)
    return min(quotas, default=None)


def memory_limit(root: Path) -> int | None:
    """Return the lowest memory limit in bytes, None without one."""
    limits: list[int] = []
    for group in _unified_groups(root):
        limits += _numbers(group / "memory.max")
    for group in _v1_groups(root, "memory", MEMORY_FOLDERS):
        limits += _numbers(group / "memory.limit_in_bytes")
    return min((limit for limit in limits if limit > 0), default=None)


def memory_left(root: Path) -> int | None:
    """Return the bytes that control groups still grant, None without a limit.

    What they count of files that were read or written is given back on demand.
    """
    left: list[int] = []
    for group in _unified_groups(root):
        left += _left(group, "memory.max", "memory.current", "file")
    for group in _v1_groups(root, "memory", MEMORY_FOLDERS):
        limit, usage = "memory.limit_in_bytes", "memory.usage_in_bytes"
        left += _left(group, limit, usage, "total_cache")
    return min(left, default=None)


def _left(group: Path, limit: str, usage: str, files: str) -> list[int]:
    limits, used = _numbers(group / limit), _numbers(group / usage)
    if not limits or not used:
        return []
    words = _text(group / "memory.stat").split()
    counts = dict(zip(words[::2], words[1::2], strict=False))
    cached = counts.get(files, "0")
    return [max(0, limits[0] - used[0] + int(cached))]


def _v2_quota(group: Path) -> list[float]:
    numbers = _numbers(group / "cpu.max")  # "250000 100000", or "max 100000"
    return [numbers[0] / numbers[1]] if len(numbers) == 2 and numbers[1] else []


def _v1_quota(group: Path) -> list[float]:
    quota = _numbers(group / "cpu.cfs_quota_us")  # -1: none
    period = _numbers(group / "cpu.cfs_period_us")
    return [quota[0] / period[0]] if quota and period and quota[0] > 0 else []


def _unified_groups(root: Path) -> Iterator[Path]:
    for controllers, path in _memberships(root):
        if controllers == "":
            yield from _with_ancestors(root, UNIFIED_FOLDERS, path)


def _v1_groups(root: Path, controller: str, folders: tuple[str, ...]) -> Iterator[Path]:
    for controllers, path in _memberships(root):
        if controller in controllers.split(","):
            yield from _with_ancestors(root, folders, path)


def _memberships(root: Path) -> Iterator[tuple[str, str]]:
    """Yield (controllers, path) of each line such as `4:cpu,cpuacct:/user.slice`."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        yield controllers, path


def _with_ancestors(root: Path, folders: tuple[str, ...], path: str) -> Iterator[Path]:
    # Inside a container the path may be the host's, which is not mounted here; the
    # walk then still ends at the mount's own root, where the container's limit is.
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for folder in folders:
        base = root / "sys/fs/cgroup" / folder
        for depth in range(len(parts), -1, -1):
            yield base.joinpath(*parts[:depth])


def _numbers(file: Path) -> list[int]:
    """Return the file's whole numbers; `max` and other words are left out."""
    words = _text(file).split()
    return [int(word) for word in words if word.lstrip("-").isdecimal()]


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
