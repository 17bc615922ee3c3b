"""Choose a DataLoader's options for the machine, always a legal combination."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ._hardware import introduce
from ._log import decide
from ._placement import ASYNC_KINDS, usable_kind
from ._settings import settings
from ._tuned import tell_tuner
from ._workers import WorkerPlan, batches_ahead, plan_workers

if TYPE_CHECKING:
    from ._placement import DeviceLike

# What DataLoader refuses without workers, and the values that it then still takes.
NEED_WORKERS: dict[str, tuple[Any, ...]] = {
    "persistent_workers": (False,),
    "prefetch_factor": (None,),
    "multiprocessing_context": (None,),
    "timeout": (0,),
}


def loader_kwargs(
    device: DeviceLike | None = None,
    /,
    *,
    train: bool = True,
    light: bool = False,
    persistent: bool = False,
    was: Mapping[str, Any] | None = None,
    **given: Any,
) -> dict[str, Any]:
    """Return keyword arguments for `torch.utils.data.DataLoader`.

    Always holds `num_workers` and `pin_memory`. `device` is where the batches go,
    `device()` by default. The number of workers is this rank's share of the usable
    CPUs less one, at most 8 (4 unless `train`, 4 if `light` work is left to them, 4 on
    MPS; on a CPU half of the share less one, at most 2), and 0 where workers cannot
    start or a debugger is attached.
    Pinned memory on CUDA, ROCm and XPU. With `persistent` the workers live on between
    epochs. Where `gpulint tune` has found a number of workers for this script and
    machine, it takes the place of that share, and `prefetch_factor` comes with it.

    `given` are options as the script writes them: they win, and those that are not
    about workers pass through. One that DataLoader refuses because there are no
    workers is left out, and that is logged. `was` are the options as they were before
    a rewriting; they apply under GPULINT_DEBUG (with 0 workers) and where the machine
    has nothing better to offer. Off: `was` and `given`, untouched.
    """
    introduce()
    before = dict(was or {})
    if settings().off:
        return before | given
    kind = usable_kind(device)
    plan = plan_workers(kind, train=train, light=light, before=before, given=given)
    options = _worker_options(before) if plan.as_before else {}
    options["num_workers"] = plan.count
    options["pin_memory"] = _pins(kind, before)
    ahead = settings().prefetch_factor or plan.prefetch
    if ahead is None and not plan.as_before:
        ahead = batches_ahead(plan.count)
    if ahead and plan.count and not settings().debug:
        options["prefetch_factor"] = ahead
    if persistent and plan.count:
        options["persistent_workers"] = True
    options |= given
    name = "loader" if train else "eval loader"
    _drop_illegal(options, name)
    decide(name, _summary(plan, options))
    tell_tuner(
        "loader_kwargs",
        train=train,
        workers=options["num_workers"],
        fixed=plan.fixed,
        prefetch_fixed="prefetch_factor" in given,
    )
    return options


def _worker_options(before: Mapping[str, Any]) -> dict[str, Any]:
    return {key: before[key] for key in NEED_WORKERS if key in before}


def _pins(kind: str, before: Mapping[str, Any]) -> bool:
    pins = kind in ASYNC_KINDS
    return bool(before.get("pin_memory", pins)) if settings().debug else pins


def _drop_illegal(options: dict[str, Any], name: str) -> None:
    workers = options["num_workers"]
    for key, harmless in NEED_WORKERS.items():
        if workers == 0 and options.get(key, harmless[0]) not in harmless:
            value = options.pop(key)
            decide(name, f"{key}={value!r} left out, it needs workers and there are 0")
    if options.get("prefetch_factor") == 0:
        del options["prefetch_factor"]
        decide(name, "prefetch_factor=0 left out, workers need at least 1")


def _summary(plan: WorkerPlan, options: Mapping[str, Any]) -> str:
    text = f"{plan.count} worker{'' if plan.count == 1 else 's'} ({plan.why})"
    if options["pin_memory"]:
        text += ", pinned"
    if options.get("persistent_workers"):
        text += ", persistent"
    ahead = options.get("prefetch_factor")
    if ahead is not None:
        text += f", {ahead} batch{'' if ahead == 1 else 'es'} ahead each"
    return text
