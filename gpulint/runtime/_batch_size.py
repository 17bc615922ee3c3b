"""Choose the batch size for the machine, and a learning rate that suits it."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

from ._hardware import Hardware, hardware, in_units, introduce
from ._limits import ram_available
from ._log import decide
from ._ranks import agree_on_minimum, in_worker, ranks_cannot_agree
from ._settings import settings
from ._tuned import tell_tuner, tuned_batches, tuned_entries

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

RULES = ("sqrt", "linear", "none")
MOST_LINEAR = 8.0  # Goyal et al. 2017 needed a warm-up to go further

_sizes: dict[tuple[str, int], int] = {}


def batch_size(default: int, *, name: str = "train", train: bool = True) -> int:
    """Return the batch size that was tuned for this hardware, else `default`.

    Of the sizes that `gpulint tune` measured for this script under `name` ("eval"
    unless `train`, if no other name is given), the winner, or the largest one below
    it whose memory is free now. `GPULINT_BATCH_SIZE` (or `GPULINT_BATCH_SIZE_EVAL`,
    by the name) comes before that. Off, under GPULINT_DEBUG and without a tuned value
    it is `default`.

    The same at each call, in worker processes, and on all ranks, which must all call
    it: the lowest of what they would take, or `default` before the process group is
    there.
    """
    name = "eval" if name == "train" and not train else name
    if settings().off:
        introduce()
        return default
    key = (name, default)
    if key not in _sizes:
        _sizes[key] = _inherited(*key) if in_worker() else _agreed(*key)
    return _sizes[key]


def scaled_lr(
    lr: float, *, batch_size: int, base_batch_size: int, rule: str = "none"
) -> float:
    """Return the learning rate for a batch size, given that for another.

    "sqrt": a batch 4 times as large doubles the rate, which suits Adam and its kin.
    "linear": it takes 4 times the rate, as SGD does, but never more than 8 times.
    "none", the same batch size, and a runtime that is off: `lr` itself.

    Raises ValueError for another `rule`.
    """
    if rule not in RULES:
        raise ValueError(f"rule={rule!r} is not one of {', '.join(RULES)}")
    if settings().off or rule == "none" or batch_size == base_batch_size:
        return lr
    ratio = batch_size / base_batch_size
    scaled = lr * (math.sqrt(ratio) if rule == "sqrt" else min(ratio, MOST_LINEAR))
    tell_tuner("scaled_lr", lr=lr, scaled=scaled, rule=rule)
    change = f"{lr:g} became {scaled:g}"
    decide("learning rate", f"{change} ({rule}: {batch_size} for {base_batch_size})")
    return scaled


def warmup(optimizer: Optimizer, steps: int) -> LRScheduler:
    """Return a scheduler that raises the learning rate to its value in `steps` steps.

    Linearly, from `1 / (steps + 1)` of it; call its `step()` after each
    `optimizer.step()`. It multiplies the rate, so that another scheduler may change it
    too. Off: a scheduler that leaves the rate alone.
    """
    from torch.optim.lr_scheduler import ConstantLR, LinearLR

    introduce()
    if settings().off or steps < 1:
        return ConstantLR(optimizer, factor=1.0, total_iters=0)
    decide("warm-up", f"{steps} steps")
    return LinearLR(optimizer, start_factor=1 / (steps + 1), total_iters=steps)


def forget_batch_sizes() -> None:
    """Begin anew, as in a fresh process."""
    for name, default in _sizes:
        os.environ.pop(_variable(name, default), None)
    _sizes.clear()


def _agreed(name: str, default: int) -> int:
    size, reason = _wanted(name, default)
    lowest = agree_on_minimum(size)
    if lowest != size:
        size, reason = lowest, "the lowest of all ranks"
    os.environ[_variable(name, default)] = str(size)
    tell_tuner("batch_size", name=name, default=default, size=size)
    label = "batch size" if name == "train" else f"batch size of {name}"
    decide(label, f"{size} ({reason})")
    return size


def _wanted(name: str, default: int) -> tuple[int, str]:
    """Return what this rank would take, and why."""
    if settings().debug:
        return default, "GPULINT_DEBUG"
    asked = settings().batch_sizes.get(name)
    if asked is not None:
        return asked, "GPULINT_BATCH_SIZE"
    entries = tuned_entries()
    if not entries:  # no look at the GPU: processes may be forked that will use it
        return default, "nothing is tuned"
    introduce()
    machine = hardware()
    batches = tuned_batches(entries, name, machine)
    if not batches:
        return default, "not tuned for this hardware"
    if ranks_cannot_agree():
        return default, "the ranks cannot agree before there is a process group"
    free = _usable_memory(machine)
    for size, peak in batches:
        if peak is None or free is None or peak <= free:
            return size, f"tuned for {machine.name}"
    return default, f"{in_units(free or 0)} free, too little for what was tuned"


def _usable_memory(machine: Hardware) -> int | None:
    """The free memory, and what this process holds of it already."""
    if machine.kind == "cpu":
        return ram_available()
    if machine.kind not in ("cuda", "rocm"):
        return machine.memory_free
    import torch

    cuda: Any = torch.cuda
    held = cuda.memory_reserved() if cuda.is_initialized() else 0
    return None if machine.memory_free is None else int(machine.memory_free + held)


def _inherited(name: str, default: int) -> int:
    """What the process decided that has started this worker."""
    found = os.environ.get(_variable(name, default), "")
    return int(found) if found.isdecimal() else default


def _variable(name: str, default: int) -> str:
    return f"_GPULINT_BATCH_SIZE_{name.upper()}_{default}"
