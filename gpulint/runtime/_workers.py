"""Decide how many worker processes a loader gets."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ._hardware import hardware
from ._limits import available_cpus, cpus_per_rank, shm_free
from ._main_guard import why_no_workers
from ._policy import policy
from ._ranks import local_world_size
from ._settings import settings
from ._tuned import tuned_entry

# Design choices: what a training loop usually needs, not what gives most.
MOST_TRAIN = 8
MOST_EVAL = 4  # both loaders live at once
MOST_LIGHT = 4  # the augmentation runs on the GPU
MOST_BY_KIND = {"cpu": 2, "mps": 4}  # on a CPU the workers take from the training
# A training on the CPUs computes on all of them. With two, a worker made it a fifth
# slower (measured with two scenarios): it has half of them for itself, and one more.
# Bytes of /dev/shm: 128 pictures of 224 x 224 in float32 are 74 MiB.
SHM_PER_BATCH = 96 * 1024**2
AHEAD = 2  # batches that a worker prepares, by PyTorch's default
HELD = 2  # one that the loop works on, and one on its way there


@dataclass(frozen=True)
class WorkerPlan:
    """A number of workers, the reason, and whether the script's own options stay."""

    count: int
    why: str
    as_before: bool = False
    fixed: bool = False  # nothing but the script's author can change it
    prefetch: int | None = None  # tuned together with the number


def plan_workers(
    kind: str,
    *,
    train: bool,
    light: bool,
    before: Mapping[str, Any],
    given: Mapping[str, Any],
) -> WorkerPlan:
    """Return the plan for a loader that feeds a device of this kind.

    First the script's own number, then `GPULINT_*`, then what was tuned for this
    machine, then what it has. Where
    it has nothing to offer, the number from `before` the rewriting stays.
    """
    if "num_workers" in given:
        return WorkerPlan(given["num_workers"], "as written", fixed=True)
    if settings().debug:
        return WorkerPlan(0, "GPULINT_DEBUG", as_before=True, fixed=True)
    obstacle = why_no_workers(given.get("multiprocessing_context"))
    if obstacle is not None:
        return WorkerPlan(0, obstacle, fixed=True)
    asked = settings().num_workers
    if asked is not None:
        return WorkerPlan(asked, "GPULINT_NUM_WORKERS")
    if debugger_attached():
        return WorkerPlan(0, "a debugger is attached", fixed=True)
    most = MOST_TRAIN if train else MOST_EVAL
    most = min(most, MOST_LIGHT) if light else most
    most = min(most, MOST_BY_KIND.get(kind, most))
    if kind == "cpu":
        share = cpus_per_rank(available_cpus(), local_world_size())
        most = min(most, max(0, share // 2 - 1))
    plan = _plan_by_resources(most, before)
    plan = _plan_by_policy(plan) if train else plan
    return _tuned_plan(plan, alone=train and local_world_size() == 1)


def batches_ahead(workers: int) -> int | None:
    """Return how many batches each worker prepares, None where no policy says so."""
    queue = policy().queue
    if queue is None or workers == 0 or settings().debug:
        return None
    each, free = math.ceil(queue / workers), shm_free()
    if free is not None:
        room = free // local_world_size() // SHM_PER_BATCH - HELD
        each = min(each, room // workers)
    return max(1, each)


def _plan_by_policy(plan: WorkerPlan) -> WorkerPlan:
    most = policy().most_workers
    if most is None or plan.as_before or plan.count <= most:
        return plan
    return replace(plan, count=most, why=f"{plan.why}, {policy().why}: at most {most}")


def _tuned_plan(plan: WorkerPlan, *, alone: bool) -> WorkerPlan:
    """What was tuned with the CPUs that there are now, else the plan by resources.

    Tuned were the workers of one training loader in one process; unless it is that
    one `alone`, it has no more of them than its share.
    """
    entry = tuned_entry()
    count = entry.get("workers")
    if type(count) is not int or count < 0:
        return plan
    machine = hardware()
    cpus = entry["hardware"].get("cpus")
    if type(cpus) is int and cpus > machine.cpus:
        return replace(plan, why=f"{plan.why}, it was tuned with {cpus}")
    if not alone and count > plan.count:
        return plan
    prefetch = entry.get("prefetch_factor")
    ahead = prefetch if type(prefetch) is int and prefetch > 0 and count else None
    return WorkerPlan(count, f"tuned for {machine.name}", prefetch=ahead)


def _plan_by_resources(most: int, before: Mapping[str, Any]) -> WorkerPlan:
    cpus, ranks, free = available_cpus(), local_world_size(), shm_free()
    why = f"{cpus} usable CPU{'s' if cpus > 1 else ''}"
    if ranks > 1:
        why += f", {ranks} local ranks"
    count = min(most, cpus_per_rank(cpus, ranks) - 1)  # one CPU for the training loop
    if free is not None and workers_within(free // ranks) < count:
        count = workers_within(free // ranks)
        why += ", little room in /dev/shm"
    if count > 0:
        return WorkerPlan(count, why)
    return WorkerPlan(before.get("num_workers", 0), why, as_before=True)


def workers_within(shm: int) -> int:
    """Return how many workers' batches there is room for in so many bytes."""
    return max(0, shm // SHM_PER_BATCH - HELD) // AHEAD


def debugger_attached() -> bool:
    """Say whether a debugger follows this process; breakpoints miss its workers."""
    trace = sys.gettrace()
    if trace is not None:
        module = getattr(trace, "__module__", None) or type(trace).__module__
        return not str(module).startswith("coverage")
    debugpy = sys.modules.get("debugpy")
    if debugpy is not None and hasattr(debugpy, "is_client_connected"):
        return bool(debugpy.is_client_connected())
    # Jupyter's kernel imports pydevd without a debugger.
    return "pydevd" in sys.modules and "ipykernel" not in sys.modules
