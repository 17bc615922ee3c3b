"""CPUs, memory and shared memory within a process's limits."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from gpulint.runtime import available_cpus
from gpulint.runtime._limits import cpus_per_rank, free_memory, ram_limit, shm_free
from gpulint.runtime._ranks import local_world_size

Files = Callable[[dict[str, str]], Path]


@pytest.fixture(autouse=True)
def sixty_four_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "process_cpu_count", raising=False)
    monkeypatch.setattr(
        os, "sched_getaffinity", lambda pid: set(range(64)), raising=False
    )


def test_affinity_alone(tmp_path: Path) -> None:
    assert available_cpus(root=tmp_path) == 64


def test_newer_pythons_count_for_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "process_cpu_count", lambda: 5, raising=False)
    assert available_cpus(root=tmp_path) == 5


@pytest.mark.parametrize("told,cpus", [(None, 1), (0, 1), (1, 1), (2, 2), (64, 64)])
def test_systems_without_affinity(
    told: int | None, cpus: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: told)
    assert available_cpus(root=tmp_path) == cpus


@pytest.mark.parametrize(
    "tree,cpus",
    [
        # version 2: the group itself, an ancestor, none, and the root of a namespace
        (
            {
                "proc/self/cgroup": "0::/a/b",
                "sys/fs/cgroup/a/b/cpu.max": "200000 100000",
            },
            2,
        ),
        (
            {"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/cpu.max": "250000 100000"},
            3,
        ),
        ({"proc/self/cgroup": "0::/a", "sys/fs/cgroup/a/cpu.max": "max 100000"}, 64),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "50000 100000"}, 1),
        ({"proc/self/cgroup": "0::/../x", "sys/fs/cgroup/cpu.max": "300000 100000"}, 3),
        (
            {
                "proc/self/cgroup": "0::/a/b",
                "sys/fs/cgroup/a/b/cpu.max": "800000 100000",
                "sys/fs/cgroup/a/cpu.max": "400000 100000",
            },
            4,
        ),
        # version 1: with the controller's path, and in a container without it
        (
            {
                "proc/self/cgroup": "5:memory:/x\n4:cpu,cpuacct:/job",
                "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us": "150000",
                "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": "100000",
            },
            2,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu:/docker/4f2a",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "600000",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            6,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu:/",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            64,
        ),
        ({"proc/self/cgroup": "nonsense", "sys/fs/cgroup/cpu.max": "what 1"}, 64),
    ],
)
def test_quota(tree: dict[str, str], cpus: int, files: Files) -> None:
    assert available_cpus(root=files(tree)) == cpus


def test_slurm_grants_fewer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "12")
    assert available_cpus(root=tmp_path) == 12
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "nonsense")
    assert available_cpus(root=tmp_path) == 64


@pytest.mark.parametrize(
    "variables,ranks,share",
    [
        ({}, 4, 16),
        # one task a rank: the grant is the rank's own
        ({"SLURM_CPUS_PER_TASK": "64", "SLURM_NTASKS_PER_NODE": "4"}, 4, 64),
        # one task, in which torchrun starts four ranks
        ({"SLURM_CPUS_PER_TASK": "64", "SLURM_NTASKS_PER_NODE": "1"}, 4, 16),
        ({"SLURM_CPUS_PER_TASK": "64"}, 4, 16),
    ],
)
def test_share_of_a_rank(
    variables: dict[str, str], ranks: int, share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cpus_per_rank(64, ranks) == share


@pytest.mark.parametrize(
    "variables,size",
    [
        ({}, 1),
        ({"LOCAL_WORLD_SIZE": "8", "SLURM_NTASKS_PER_NODE": "1"}, 8),
        ({"SLURM_NTASKS_PER_NODE": "4"}, 4),
        ({"SLURM_NTASKS_PER_NODE": "4(x2)"}, 4),
        ({"SLURM_STEP_TASKS_PER_NODE": "2(x3),1", "SLURM_NODEID": "0"}, 2),
        ({"SLURM_STEP_TASKS_PER_NODE": "2(x3),1", "SLURM_NODEID": "3"}, 1),
        ({"SLURM_STEP_TASKS_PER_NODE": "2(x3),1", "SLURM_NODEID": "9"}, 1),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, 2),
        ({"MPI_LOCALNRANKS": "3"}, 3),
        ({"LOCAL_WORLD_SIZE": "0"}, 1),
        ({"LOCAL_WORLD_SIZE": "two"}, 1),
    ],
)
def test_local_world_size(
    variables: dict[str, str], size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert local_world_size() == size


def test_local_world_size_of_processes_without_a_launcher(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = types.SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        get_rank=lambda: 0,
        get_world_size=lambda: 16,
    )
    monkeypatch.setitem(sys.modules, "torch.distributed", group)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    assert local_world_size() == 8
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert local_world_size() == 16
    group.is_available = lambda: False
    assert local_world_size() == 1


@pytest.mark.parametrize(
    "tree,limit",
    [
        ({"proc/self/cgroup": "0::/a", "sys/fs/cgroup/a/memory.max": "1024"}, 1024),
        (
            {
                "proc/self/cgroup": "3:memory:/a",
                "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "2048",
            },
            2048,
        ),
        (
            {
                "proc/self/cgroup": "3:memory:/",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
            },
            4096 * 1000,
        ),
        ({}, 4096 * 1000),
    ],
)
def test_memory(
    tree: dict[str, str], limit: int, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 1000}
    monkeypatch.setattr(os, "sysconf", answers.__getitem__)
    assert ram_limit(root=files(tree)) == limit


def test_memory_where_the_system_does_not_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sysconf")
    assert ram_limit(root=tmp_path) is None


@pytest.mark.parametrize(
    "tree,free",
    [
        ({}, None),
        ({"proc/meminfo": "MemTotal: 9 kB\nMemAvailable:    8 kB\n"}, 8192),
        ({"proc/meminfo": "MemTotal: 9 kB\n"}, None),
        (  # version 2: what is cached of files counts as free
            {
                "proc/meminfo": "MemAvailable: 800 kB",
                "proc/self/cgroup": "0::/a",
                "sys/fs/cgroup/a/memory.max": "10000",
                "sys/fs/cgroup/a/memory.current": "9000",
                "sys/fs/cgroup/a/memory.stat": "anon 5000\nfile 4000\n",
            },
            5000,
        ),
        (  # version 1, with no word of files
            {
                "proc/self/cgroup": "3:memory:/",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "10000",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": "9000",
            },
            1000,
        ),
        (
            {
                "proc/meminfo": "MemAvailable: 8 kB",
                "proc/self/cgroup": "0::/a",
                "sys/fs/cgroup/a/memory.max": "max",
                "sys/fs/cgroup/a/memory.current": "9000",
            },
            8192,
        ),
    ],
)
def test_free_memory(tree: dict[str, str], free: int | None, files: Files) -> None:
    assert free_memory(root=files(tree)) == free


def test_shared_memory(tmp_path: Path) -> None:
    assert shm_free(root=tmp_path) is None
    (tmp_path / "dev/shm").mkdir(parents=True)
    assert (shm_free(root=tmp_path) or 0) > 0
