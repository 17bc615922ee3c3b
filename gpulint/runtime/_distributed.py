"""Share a training run among the ranks that a launcher has started."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Iterator, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from ._hardware import introduce
from ._log import decide
from ._placement import accelerator_count, choose_device
from ._precision import agree_on_formats
from ._ranks import (
    agree_on_minimum,
    env_count,
    in_worker,
    initialised_distributed,
    local_rank,
    local_world_size,
)
from ._settings import settings

if TYPE_CHECKING:
    from torch.utils.data import Dataset, DistributedSampler

# What `init_process_group` reads; torchrun sets all of them.
RENDEZVOUS = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Distributed:
    """This process among the ranks of a run; alone it is rank 0 of 1."""

    rank: int
    local_rank: int  # among the ranks of this machine
    world_size: int

    @property
    def is_main(self) -> bool:
        """Whether this is the one process that writes files and figures."""
        return self.rank == 0

    def sampler(
        self,
        dataset: Sized,
        *,
        shuffle: bool = True,
        drop_last: bool = False,
        seed: int = 0,
    ) -> DistributedSampler[Any] | None:
        """Return the sampler of this rank's part of the dataset, None if it is alone.

        For `DataLoader(dataset, sampler=sampler, shuffle=sampler is None)`. Each pass
        is shuffled anew; `set_epoch()` still chooses one, to resume with. `seed` must
        be the same on all ranks. As in torch's own, some samples come twice to make
        the parts equal (none, and some not at all, with `drop_last`).
        """
        if self.world_size == 1:
            return None
        from ._shards import Shards

        return Shards(
            cast("Dataset[Any]", dataset),
            num_replicas=self.world_size,
            rank=self.rank,
            shuffle=shuffle,
            drop_last=drop_last,
            seed=seed,
        )

    def wait(self) -> None:
        """Wait until all ranks are here; all of them must call this."""
        agree_on_minimum(0)

    @contextlib.contextmanager
    def main_first(self) -> Iterator[None]:
        """Let rank 0 run a block, a download for instance, before the others do."""
        if not self.is_main:
            self.wait()
        try:
            yield
        finally:
            if self.is_main:
                self.wait()


_known: list[Distributed] = []


def distributed() -> Distributed:
    """Return this process's place in the run, ready to work with the other ranks.

    Under torchrun, or what else sets `RANK`, `WORLD_SIZE`, `MASTER_ADDR` and
    `MASTER_PORT` for more than one process, it starts a process group unless the
    script has: NCCL where each rank has a CUDA device of its own, otherwise Gloo. Then
    all ranks agree on mixed precision, as `batch_size` lets them agree on the batch;
    so all of them must call this, before they ask for either. That batch size is each
    rank's own: a learning rate goes by `world_size` times as many samples.

    Without a launcher it does nothing: rank 0 of 1, no sampler, no waiting. Off: it
    starts nothing, and knows only of a process group that the script has started.
    """
    introduce()
    if _known:
        return _known[0]
    started = "" if settings().off or in_worker() else _start()
    group = initialised_distributed()
    if group is None:
        return _without_group()
    place = Distributed(group.get_rank(), local_rank() or 0, group.get_world_size())
    _known.append(place)
    if not settings().off:
        agree_on_formats()
        by = started or f"{group.get_backend()}, the script's own process group"
        decide("ranks", f"{place.world_size} ({by})")
    return place


def forget_ranks() -> None:
    """Begin anew, as in a fresh process."""
    _known.clear()


def _without_group() -> Distributed:
    if settings().off:
        return Distributed(0, 0, 1)
    if not _launched():
        decide("ranks", "1 (no launcher has started more)")
        return Distributed(0, 0, 1)
    # A worker that imports the script: it may ask, but not speak with the others.
    rank, size = env_count("RANK") or 0, env_count("WORLD_SIZE") or 1
    return Distributed(rank, local_rank() or 0, size)


def _launched() -> bool:
    is_complete = all(os.environ.get(name) for name in RENDEZVOUS)
    return is_complete and (env_count("WORLD_SIZE") or 1) > 1


def _start() -> str:
    """Start a process group where one is missing, and say which; else say nothing."""
    if not _launched() or initialised_distributed() is not None:
        return ""
    import torch.distributed

    backend = _backend(torch.distributed)
    torch.distributed.init_process_group(backend)
    atexit.register(_end)
    return f"{backend}, by the launcher's variables"


def _backend(distributed: Any) -> str:
    kind = choose_device().type
    shared = accelerator_count(kind) < local_world_size() if kind != "cpu" else False
    nccl = kind == "cuda" and distributed.is_nccl_available()
    # Both: what the ranks agree on goes over the CPU and needs no memory of the GPU.
    # NCCL refuses two ranks on one device.
    return "cpu:gloo,cuda:nccl" if nccl and not shared else "gloo"


def _end() -> None:
    group = initialised_distributed()
    # After an error the others may be waiting for this rank, and it would for them;
    # the launcher ends them when this process is gone.
    if group is not None and not hasattr(sys, "last_value"):
        group.destroy_process_group()
