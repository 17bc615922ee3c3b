"""Find out by trying how many samples a training step can take."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from ._hardware import in_units, introduce
from ._log import decide, report
from ._placement import ASYNC_KINDS, choose_device, exists
from ._ranks import (
    agree_on_minimum,
    in_worker,
    initialised_distributed,
    ranks_cannot_agree,
)
from ._restore import PutBack, remember
from ._settings import settings

if TYPE_CHECKING:
    import torch

TrainingStep = Callable[[int], object]

# Design choices, not measured.
SETTLING = 2  # steps before the one that is timed: optimizer states, chosen kernels
MEMORY_FRACTION = 0.9  # of what this process may have; samples may differ in size
LEAST_GAIN = 1.05  # twice the samples must at least be as much faster
UNITS = ((512, 64), (8, 8))  # from this size on multiples of that

NEEDED = ("mem_get_info", "memory_reserved", "max_memory_reserved", "get_rng_state_all")
# What else than OutOfMemoryError says so: cuBLAS, cuDNN, the driver, the host.
SHORTAGES = (
    "out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_NOT_SUPPORTED",
    "can't allocate memory",
)


class Trial(NamedTuple):
    """A size that was tried; `rate` is in samples a second, None if it did not fit."""

    size: int
    rate: float | None


class Found(NamedTuple):
    """The size to take, 0 if none fits, and why."""

    size: int
    why: str


def find_batch_size(
    step: TrainingStep, *, start: int, max_size: int, restore: Iterable[Any]
) -> int:
    """Return the largest batch size that fits the GPU and pays, by trying.

    `step(n)` does a whole training step with n samples, forward, backward and the
    optimizer, of the largest samples that there are. It runs with `start`, then twice
    as many each time up to `max_size`, until memory runs out or more than 90 % of it
    would be taken (then sizes between are tried, or below `start`), or until twice the
    samples are less than 5 % faster.

    Afterwards everything in `restore` is as it was, and so are Python's, NumPy's and
    torch's random numbers: modules with gradients, buffers and modes; optimizers,
    schedulers and scalers, all that has a `state_dict`; generators. What else a step
    changes, an iterator for example, stays changed.

    `start` without trying on a CPU, on MPS, under GPULINT_DEBUG, in workers, when
    switched off, and with several ranks before there is a process group; else
    `GPULINT_BATCH_SIZE` if it is set. All ranks must call this, with modules that are
    not wrapped yet, and get the lowest of their sizes. A larger batch is another
    training: see `scaled_lr`, and `gpulint tune`, which tries once for all runs.

    Raises ValueError for a `start` outside 1 to `max_size` and for a wrapped module,
    TypeError for what cannot be restored; errors of `step` other than too little
    memory are raised, after everything is restored.
    """
    if not 1 <= start <= max_size:
        raise ValueError(f"start={start!r} is not between 1 and max_size={max_size!r}")
    introduce()
    if settings().off or in_worker():
        return start
    things = list(restore)
    _refuse_wrapped(things)
    device = _device_of(things)
    reason = _why_not(device)
    asked = settings().batch_sizes.get("train")
    if reason is not None:
        found = Found(start, reason)
    elif asked is not None:
        found = Found(asked, "GPULINT_BATCH_SIZE")
    else:
        found = _search(step, start, max_size, device, remember(things, device))
    size = found.size or start
    lowest = agree_on_minimum(size)
    why = found.why if lowest == size else "the lowest of all ranks"
    decide("batch size search", f"{lowest} ({why})")
    return lowest


def is_out_of_memory(error: BaseException) -> bool:
    """Say whether an error means that there was too little memory for this step."""
    import torch

    if isinstance(error, torch.cuda.OutOfMemoryError):  # XPU raises the same class
        return True
    return any(text in str(error) for text in SHORTAGES)


def _why_not(device: torch.device) -> str | None:
    import torch

    if settings().debug:
        return "GPULINT_DEBUG"
    if device.type not in ASYNC_KINDS or not exists(device):
        return f"nothing tried, {device} does not say when memory runs short"
    if not all(hasattr(getattr(torch, device.type), name) for name in NEEDED):
        return f"nothing tried, this torch cannot tell the memory of {device}"
    if ranks_cannot_agree():
        return "the ranks cannot agree before there is a process group"
    return None


def _device_of(things: list[Any]) -> torch.device:
    import torch

    for thing in things:
        if isinstance(thing, torch.nn.Module):
            for parameter in thing.parameters():
                return parameter.device
    return choose_device()


def _refuse_wrapped(things: list[Any]) -> None:
    group = initialised_distributed()
    if group is None or group.get_world_size() == 1:
        return
    for thing in things:
        kind = type(thing).__name__
        if kind in ("DistributedDataParallel", "FullyShardedDataParallel"):
            text = f"{kind}: restore the module in it, and try steps with that"
            raise ValueError(f"{text}; ranks that try different sizes would wait")


# Searching


def _search(
    step: TrainingStep, start: int, most: int, device: torch.device, put_back: PutBack
) -> Found:
    def tried(size: int) -> Trial:
        try:
            return _tried(step, size, device)
        finally:
            put_back()
            _free_memory(device)

    _free_memory(device)
    first = tried(start)
    if first.rate is None:
        size = _between(tried, 0, start)
        return Found(size, f"{start} do not fit" if size else "not even 1 fits")
    return _upwards(tried, first, most)


def _upwards(tried: Callable[[int], Trial], best: Trial, most: int) -> Found:
    while best.size < most:
        larger = tried(min(2 * best.size, most))
        if larger.rate is None:
            size = _between(tried, best.size, larger.size)
            return Found(size, "more does not fit")
        if larger.rate < LEAST_GAIN * (best.rate or 0):
            return Found(best.size, f"{larger.size} are hardly faster")
        best = larger
    return Found(best.size, "the most that may be tried")


def _between(tried: Callable[[int], Trial], fits: int, too_many: int) -> int:
    """Return the largest size of a round number that fits."""
    while sizes := range(*_round_numbers(fits, too_many)):
        middle = tried(sizes[len(sizes) // 2])
        if middle.rate is None:
            too_many = middle.size
        else:
            fits = middle.size
    return fits


def _round_numbers(above: int, below: int) -> tuple[int, int, int]:
    unit = next((unit for size, unit in UNITS if above >= size), 1)
    return above // unit * unit + unit, below, unit


# Trying


def _tried(step: TrainingStep, size: int, device: torch.device) -> Trial:
    import torch

    accelerator: Any = getattr(torch, device.type)
    accelerator.reset_peak_memory_stats(device)
    seconds = _seconds(step, size, device)
    if seconds is None:
        report("batch size search", f"{size} do not fit")
        return Trial(size, None)
    peak = accelerator.max_memory_reserved(device)
    usable = accelerator.memory_reserved(device) + accelerator.mem_get_info(device)[0]
    if peak > MEMORY_FRACTION * usable:
        text = f"{size} take {in_units(peak)} of {in_units(usable)}, too close"
        report("batch size search", text)
        return Trial(size, None)
    rate = size / max(seconds, 1e-9)
    report("batch size search", f"{size} fit ({in_units(peak)}, {rate:.0f} samples/s)")
    return Trial(size, rate)


def _seconds(step: TrainingStep, size: int, device: torch.device) -> float | None:
    """Return what a step takes once all is settled, None if memory runs out."""
    import torch

    accelerator: Any = getattr(torch, device.type)
    try:
        for _ in range(SETTLING):
            step(size)
        accelerator.synchronize(device)
        begin = time.perf_counter()
        step(size)
        accelerator.synchronize(device)
        return time.perf_counter() - begin
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
    # Only here, without the error, whose traceback holds the step's tensors.
    return None


def _free_memory(device: torch.device) -> None:
    import torch

    gc.collect()
    getattr(torch, device.type).empty_cache()
