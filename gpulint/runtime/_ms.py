"""Settings of MindSpore that depend on the machine: device, batch, workers, precision.

The tables are rules of thumb for networks on video or long sequences, a few samples a
batch: they raise what a script was written with, and never lower it.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from ._batch_size import scaled_lr
from ._limits import available_cpus, cpus_per_rank, shm_free
from ._log import decide
from ._nvml import nvml_facts
from ._ranks import env_count, local_world_size
from ._settings import settings
from ._workers import debugger_attached, workers_within

TARGETS = ("GPU", "Ascend", "CPU")  # in the order in which they are tried
GIB = 1024**3
# GPU memory from which on (cards have a little less than their name says), samples.
BATCHES = ((15.5, 8), (11.5, 6), (7.5, 4))
# CPUs from which on, threads of a native operation, processes of a Python one.
WORKERS = ((16, 6, 8), (5, 4, 6), (1, 2, 4))
WARM_UP_STEPS = 100
_RANKS = ("RANK_SIZE", "MS_WORKER_NUM", "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE")


class ms:
    """Helpers for a training with MindSpore, called as `runtime.ms.workers()`.

    Every method gives the script's own value with `GPULINT_RUNTIME=off` and under
    `GPULINT_DEBUG`. MindSpore is imported when a method needs it.
    """

    @staticmethod
    def setup(target: str = "GPU", device_id: int | None = None) -> str:
        """Set the device: `target`, else the first of GPU, Ascend and CPU there is.

        Returns the target that MindSpore has taken. Says why it took no other. Off: it
        sets `target` alone, as the script did, which raises where there is none.
        """
        if settings().off:
            _set_device(target, device_id)
            return target
        refused = []
        for choice in dict.fromkeys((target, *TARGETS)):
            try:
                _set_device(choice, device_id if choice == target else None)
            except (RuntimeError, ValueError, TypeError) as error:
                refused.append(f"{choice}: {_first_sentence(error)}")
                continue
            decide("MindSpore device", _because(choice, refused))
            return choice
        current = _target()
        decide("MindSpore device", _because(f"{current} stays", refused))
        return current

    @staticmethod
    def batch_size(default: int) -> int:
        """Return the batch size for the GPU's memory, `default` or more.

        8 GB: 4, 12 GB: 6, 16 GB and more: 8. `GPULINT_BATCH_SIZE` comes before that.
        On a CPU, on several ranks and where the memory is not known it is `default`.
        """
        size, why = _size(default)
        decide("batch size", f"{size} ({why})")
        return size

    @staticmethod
    def workers(was: int = 1, *, python: bool = False) -> int:
        """Return `num_parallel_workers`, never more than MindSpore accepts here.

        2 up to 4 usable CPUs, 4 up to 15, 6 from 16 on. `python`: the work is in
        Python, in processes: 4, 6 and 8, as far as /dev/shm has room for them; a
        training on the CPUs keeps one of these for itself.
        `GPULINT_NUM_WORKERS` comes before that; `was` is the script's own number.
        """
        count, why = _plan(was, python)
        decide("pipeline", f"{count} worker{'s' if count > 1 else ''} ({why})")
        return count

    @staticmethod
    def amp_level(was: str = "O0") -> str:
        """Return `amp_level` of a model: O2 on GPU and Ascend, `was` on a CPU.

        `GPULINT_AMP=off` is O0.
        """
        if settings().off or settings().debug:
            return was
        if settings().amp == "off":
            return "O0"
        target = _target()
        level = was if target == "CPU" else "O2"
        decide("mixed precision", f"amp_level {level} on {target}")
        return level

    @staticmethod
    def sink(was: bool = False) -> bool:
        """Return `dataset_sink_mode`: True on GPU and Ascend, `was` on a CPU.

        In that mode callbacks see the loss once for what has sunk, not each step.
        """
        if settings().off or settings().debug:
            return was
        target = _target()
        sinks = was if target == "CPU" else True
        decide("data sink", f"{'on' if sinks else 'off'} on {target}")
        return sinks

    @staticmethod
    def scaled_lr(
        lr: Any,
        *,
        batch_size: int,
        base_batch_size: int,
        rule: str = "sqrt",
        warmup_steps: int = WARM_UP_STEPS,
    ) -> Any:
        """Return the learning rate for a batch size, given that for another.

        "sqrt": a batch 4 times as large doubles the rate. A rate that changed begins
        low and reaches its value in `warmup_steps` steps. A number becomes a
        `mindspore.nn.WarmUpLR` (or stays one, without warm-up); a list of a rate for
        each step stays one. The same batch size, "none" and a runtime that is off give
        `lr` itself, as does a schedule of MindSpore's.

        Raises ValueError for another rule than "sqrt", "linear" and "none".
        """
        sizes = {"batch_size": batch_size, "base_batch_size": base_batch_size}
        if isinstance(lr, Sequence):
            scaled = [scaled_lr(rate, **sizes, rule=rule) for rate in lr]
            return lr if scaled == list(lr) else _ramped(scaled, warmup_steps)
        if not isinstance(lr, int | float):
            if batch_size != base_batch_size:
                decide("learning rate", f"as written: a {type(lr).__name__}")
            return lr
        rate = scaled_lr(lr, **sizes, rule=rule)
        if rate == lr:
            return lr
        if warmup_steps < 1:
            return rate
        decide("warm-up", f"{warmup_steps} steps")
        return importlib.import_module("mindspore.nn").WarmUpLR(rate, warmup_steps)


def _set_device(target: str, device_id: int | None) -> None:
    """With the function of newer releases, or what there was before 2.5.

    Which still does where something has been computed; the new one says so then.
    """
    mindspore = importlib.import_module("mindspore")
    if hasattr(mindspore, "set_device"):
        chosen = () if device_id is None else (device_id,)
        try:
            mindspore.set_device(target, *chosen)
            return
        except RuntimeError as error:
            if "initialized" not in str(error):
                raise
    also = {} if device_id is None else {"device_id": device_id}
    _context().set_context(device_target=target, **also)


def _context() -> ModuleType:
    """The module with `set_context` and `get_context`: of MindSpore 1, an inner one."""
    mindspore = importlib.import_module("mindspore")
    if hasattr(mindspore, "get_context"):
        return mindspore
    return importlib.import_module("mindspore.context")


def _target() -> str:
    """The device that MindSpore computes on."""
    return str(_context().get_context("device_target"))


def _trains_on_cpus() -> bool:
    """Whether the MindSpore that the script has imported computes on the CPUs."""
    return "mindspore" in sys.modules and _target() == "CPU"


def _first_sentence(error: BaseException) -> str:
    first = next(iter(str(error).strip().splitlines()), type(error).__name__)
    return first.partition(". ")[0].rstrip(".")


def _because(choice: str, refused: list[str]) -> str:
    return f"{choice} ({'; '.join(refused)})" if refused else choice


def _size(default: int) -> tuple[int, str]:
    """The size, and why."""
    if settings().off or settings().debug:
        return default, "as written"
    asked = settings().batch_sizes.get("train")
    if asked is not None:
        return asked, "GPULINT_BATCH_SIZE"
    if max((env_count(name) or 1) for name in _RANKS) > 1:
        return default, "several ranks"
    target = _target()
    if target != "GPU":
        return default, f"as written for {target}"
    facts = nvml_facts(int(_context().get_context("device_id")))
    if facts is None:
        return default, "the GPU's memory is not known"
    memory = facts.memory_total / GIB
    size = next((size for least, size in BATCHES if memory >= least), default)
    return max(size, default), f"{memory:.1f} GiB of GPU memory"


def _plan(was: int, python: bool) -> tuple[int, str]:
    """The number, and why."""
    most = os.cpu_count() or 1  # MindSpore refuses more
    if settings().off:
        return was, "as written"
    if settings().debug:
        return max(1, min(was, most)), "GPULINT_DEBUG"
    asked = settings().num_workers
    if asked is not None:
        return max(1, min(asked, most)), "GPULINT_NUM_WORKERS"
    if python and debugger_attached():
        return max(1, min(was, most)), "a debugger is attached"
    cpus = max(1, cpus_per_rank(available_cpus(), local_world_size()))
    row = next(row for row in WORKERS if cpus >= row[0])
    count = min(row[2] if python else row[1], cpus)
    why = f"{cpus} usable CPU{'s' if cpus > 1 else ''}"
    if python and count == cpus > 1 and _trains_on_cpus():
        count -= 1  # processes that compute take from the training, unlike threads
        why += ", one for the training"
    free = shm_free() if python else None
    room = count if free is None else workers_within(free // local_world_size())
    if room < count:
        count = room
        why += ", little room in /dev/shm"
    return min(max(was, count, 1), most), why


def _ramped(rates: list[float], steps: int) -> list[float]:
    """Rates that begin low, each step a little more of its value."""
    return [rate * min(1.0, (n + 1) / (steps + 1)) for n, rate in enumerate(rates)]
