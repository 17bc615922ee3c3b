"""Find this process's place among ranks, workers and other child processes."""

from __future__ import annotations

import multiprocessing
import os
import re
import sys
from typing import Any, TypeVar

T = TypeVar("T")

RANK_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
WORLD_SIZE_VARIABLES = (
    "WORLD_SIZE",
    "SLURM_NTASKS",
    "OMPI_COMM_WORLD_SIZE",
    "PMI_SIZE",
)
MPI_LOCAL_SIZES = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
SLURM_GROUP = re.compile(r"(\d+)(?:\(x(\d+)\))?")


def global_rank() -> int:
    """Return the rank in the whole run, 0 where there is only one process."""
    distributed = initialised_distributed()
    if distributed is not None:
        return int(distributed.get_rank())
    return next((n for n in map(env_count, RANK_VARIABLES) if n is not None), 0)


def ranks_cannot_agree() -> bool:
    """Say whether other ranks run that cannot be asked, as there is no group yet."""
    sizes = map(env_count, WORLD_SIZE_VARIABLES)
    several = any(size is not None and size > 1 for size in sizes)
    return several and initialised_distributed() is None


def agree_on_minimum(number: int) -> int:
    """Return the lowest number that any rank brings; all ranks must call this."""
    return min(of_all_ranks(number))


def of_all_ranks(value: T) -> list[T]:
    """Return what each rank brings, by rank; all ranks must call this."""
    distributed = initialised_distributed()
    ranks = 1 if distributed is None else int(distributed.get_world_size())
    brought = [value] * ranks
    if ranks > 1:
        distributed.all_gather_object(brought, value)
    return brought


def local_rank() -> int | None:
    """Return the rank on this machine as torchrun sets it, None without it."""
    return env_count("LOCAL_RANK")


def local_world_size() -> int:
    """Return how many ranks share this machine, at least 1.

    Sources, first one wins: torchrun, SLURM, Open MPI and Intel MPI, and a
    `torch.distributed` process group where no launcher left a variable.
    """
    found = env_count("LOCAL_WORLD_SIZE") or slurm_tasks_per_node()
    for name in MPI_LOCAL_SIZES:
        found = found or env_count(name)
    return max(1, found or _group_size_on_one_machine())


def slurm_tasks_per_node() -> int | None:
    """Return this node's number of SLURM tasks.

    SLURM writes `4` where all nodes are alike, and a list such as `2(x3),1` that
    counts the nodes in order where it speaks of each of them.
    """
    for name in ("SLURM_NTASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE"):
        nodes: list[int] = []
        for tasks, times in SLURM_GROUP.findall(os.environ.get(name, "")):
            nodes += [int(tasks)] * min(int(times or 1), 100_000)
        if nodes:
            return nodes[min(env_count("SLURM_NODEID") or 0, len(nodes) - 1)]
    return None


def in_worker() -> bool:
    """Say whether this is a loader's worker process, or a child not yet set up."""
    return multiprocessing.current_process().daemon or bootstrapping()


def in_loader_worker() -> bool:
    """Say whether a DataLoader has started this process to read samples."""
    data = sys.modules.get("torch.utils.data")
    return data is not None and data.get_worker_info() is not None


def bootstrapping() -> bool:
    """Say whether a spawned process is still importing its parent's main module.

    multiprocessing sets this flag itself, to refuse new processes at that time.
    """
    return bool(getattr(multiprocessing.current_process(), "_inheriting", False))


def env_count(name: str) -> int | None:
    """Return a variable that holds a whole number of 0 or more, else None."""
    value = os.environ.get(name, "").strip()
    return int(value) if value.isdecimal() else None


def _group_size_on_one_machine() -> int:
    distributed = initialised_distributed()
    if distributed is None:
        return 1
    import torch

    # Nothing says how the ranks are spread over machines; one rank a GPU is usual.
    size = int(distributed.get_world_size())
    return min(size, torch.cuda.device_count() or size)


def initialised_distributed() -> Any:
    """Return `torch.distributed` where there is a process group, else None."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available():
        return None
    return distributed if distributed.is_initialized() else None
