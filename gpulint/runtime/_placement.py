"""Turn what a script calls a device into one that this machine has."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from ._ranks import local_rank

if TYPE_CHECKING:
    import torch

    DeviceLike: TypeAlias = torch.device | str | int

ACCELERATORS = ("cuda", "xpu", "mps")  # ROCm calls itself "cuda"
# Where a copy from the host may run beside the host. On MPS the host's memory may be
# given away before the copy is done: wrong numbers, and no error.
ASYNC_KINDS = ("cuda", "xpu")


def as_device(device: DeviceLike) -> torch.device:
    """Return a torch.device; a number counts the machine's accelerators."""
    import torch

    if isinstance(device, int):
        kind = next(filter(accelerator_count, ACCELERATORS), "cuda")
        return torch.device(kind, device)
    return torch.device(device)


def accelerator_count(kind: str) -> int:
    """Return how many devices of a kind this process sees; starts none of them."""
    import torch

    if kind == "cuda":
        return torch.cuda.device_count() if torch.cuda.is_available() else 0
    if kind == "xpu":
        xpu = getattr(torch, "xpu", None)
        return xpu.device_count() if xpu is not None and xpu.is_available() else 0
    return 1 if torch.backends.mps.is_available() else 0


def exists(device: torch.device) -> bool:
    """Say whether this machine has the device; other backends are believed."""
    if device.type not in ACCELERATORS:
        return True
    return (number_of(device) or 0) < accelerator_count(device.type)


def number_of(device: torch.device) -> int | None:
    """Return the device's number, None where it was named without one."""
    return device.index  # torch's own annotation forgets the None


def numbered(device: torch.device) -> torch.device:
    """Return the device with its number: a bare "cuda" is the current one."""
    import torch

    if number_of(device) is not None or device.type not in ASYNC_KINDS:
        return device
    try:
        return torch.device(device.type, getattr(torch, device.type).current_device())
    except (RuntimeError, AssertionError):  # it will not start in this process
        return device


def choose_device(preferred: DeviceLike | None = None) -> torch.device:
    """Return the preferred device, or the first accelerator, or the CPU.

    A device named without a number gets its rank's under a launcher that sets
    `LOCAL_RANK`, counted round where there are fewer devices than ranks.
    """
    import torch

    if preferred is not None:
        wanted = as_device(preferred)
        if exists(wanted):
            return _of_local_rank(wanted)
    kind = next(filter(accelerator_count, ACCELERATORS), "cpu")
    return _of_local_rank(torch.device(kind))


def usable_kind(device: DeviceLike | None) -> str:
    """Return the device's type, "cpu" where this machine lacks the device."""
    if device is None:
        return choose_device().type
    wanted = as_device(device)
    return wanted.type if exists(wanted) else "cpu"


def _of_local_rank(device: torch.device) -> torch.device:
    import torch

    rank = local_rank()
    if rank is None or number_of(device) is not None or device.type not in ASYNC_KINDS:
        return device
    return torch.device(device.type, rank % accelerator_count(device.type))
