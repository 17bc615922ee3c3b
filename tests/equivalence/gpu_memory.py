"""Memory and random numbers of the pretended GPU."""

from __future__ import annotations

from typing import Any

import torch


class Race(AssertionError):
    """The source of a copy was changed before the device had read it."""


class Queue:
    """Copies that the device has yet to do."""

    def __init__(self) -> None:
        self.reads: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.writes: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.waits = 0

    def wait(self) -> None:
        """The host waits: all copies are done, in the order they were asked for."""
        self.waits += 1
        reads, self.reads = self.reads, []
        writes, self.writes = self.writes, []
        for source, seen in reads:
            if not torch.equal(source, seen):
                raise Race("a pinned source changed before its copy was done")
        for target, value in writes:
            target.copy_(value)


QUEUE = Queue()
PINNED = "_pinned_here"


def pin(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in pinned memory; the same one if it is there already."""
    if tensor.device.type != "cpu":
        kind = "only dense CPU tensors can be pinned"
        raise RuntimeError(f"cannot pin '{tensor.device.type}' tensors, {kind}")
    if pinned(tensor):
        return tensor
    copied = tensor.detach().clone()
    setattr(copied, PINNED, True)
    return copied


def pinned(tensor: torch.Tensor) -> bool:
    """Whether the tensor, or the one it is a view of, lies in pinned memory."""
    base = tensor._base
    return hasattr(tensor, PINNED) or (base is not None and hasattr(base, PINNED))


class Numbers:
    """The device's own random numbers."""

    def __init__(self) -> None:
        self.state = torch.Generator().manual_seed(1).get_state()

    def seed(self, seed: int) -> None:
        self.state = torch.Generator().manual_seed(seed + 1).get_state()

    def draw(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operation that draws, leaving the host's generator alone."""
        host = torch.default_generator.get_state()
        torch.default_generator.set_state(self.state)
        try:
            return func(*args, **kwargs)
        finally:
            self.state = torch.default_generator.get_state()
            torch.default_generator.set_state(host)


NUMBERS = Numbers()
