"""Loader options in settings files that make a training wait for its batches."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpulint.index import Value, Values
from gpulint.script.loading.device_batches import why_not_pinned
from gpulint.script.loading.kept_workers import stays_the_same
from gpulint.script.loading.loader_options import trains_on_cpu
from gpulint.script.loading.pinning import goes_to_gpu
from gpulint.script.loading.serial import wants_workers
from gpulint.script.settings.setting_values import is_meant, option_settings

if TYPE_CHECKING:
    from gpulint.script.loading.loaders import Loader
    from gpulint.script.model import Script

_EPOCH_METHODS = ("train_dataloader", "val_dataloader")
Finder = Callable[["Script", "Loader"], Iterator[Value]]


@dataclass(frozen=True, eq=False)
class SlowSetting:
    """An option's value in a settings file, and the loaders that it slows down.

    `sure`: it costs something, as pinning in the process that trains does not.
    """

    option: str
    value: Value
    loaders: tuple[Loader, ...]
    sure: bool


def slow_settings(script: Script) -> list[SlowSetting]:
    """Each value once, in no order."""
    if trains_on_cpu(script):
        return []
    found: dict[ast.expr, tuple[str, Value, list[Loader]]] = {}
    for option, finder in _FINDERS.items():
        for loader in script.loaders:
            for value in finder(script, loader):
                kept = found.setdefault(value.node, (option, value, []))
                kept[2].append(loader)
    return [
        SlowSetting(
            option,
            value,
            tuple(loaders),
            option != "pin_memory" or not all(_is_alone(script, x) for x in loaders),
        )
        for option, value, loaders in found.values()
    ]


def _serial(script: Script, loader: Loader) -> Iterator[Value]:
    """0 or 1 workers where samples take work."""
    runs = option_settings(script, loader, "num_workers")
    if runs and wants_workers(loader):
        yield from _plain(script, runs, 0, 1)


def _unpinned(script: Script, loader: Loader) -> Iterator[Value]:
    """No pinned memory where batches go to a GPU."""
    runs = option_settings(script, loader, "pin_memory")
    if not runs or loader.decided_by_runtime:
        return
    if why_not_pinned(script, loader) is not None:
        return
    if goes_to_gpu(script, loader):
        yield from _plain(script, runs, False, 0)


def _is_alone(script: Script, loader: Loader) -> bool:
    """Whether no worker makes its batches, whoever says so."""
    if loader.argument("num_workers").absent:
        return True
    runs = option_settings(script, loader, "num_workers")
    return all(x.all_in(0) for x in runs or [loader.values("num_workers")])


def _restarting(script: Script, loader: Loader) -> Iterator[Value]:
    """Workers that are started again in every epoch."""
    runs = option_settings(script, loader, "persistent_workers")
    if not runs or loader.decided_by_runtime or not _each_epoch(script, loader):
        return
    if _has_workers(script, loader) and stays_the_same(script, loader):
        yield from _plain(script, runs, False)


_FINDERS: dict[str, Finder] = {
    "num_workers": _serial,
    "pin_memory": _unpinned,
    "persistent_workers": _restarting,
}


def _plain(script: Script, runs: list[Values], *constants: object) -> Iterator[Value]:
    for run in runs:
        if run.all_in(*constants) and not any(
            is_meant(script, v.node) for v in run.known
        ):
            yield run.known[0]


def _each_epoch(script: Script, loader: Loader) -> bool:
    if loader.reused:
        return True
    function = script.index.function(loader.call)
    lightning = "lightning" in script.frameworks
    return lightning and function is not None and function.name in _EPOCH_METHODS


def _has_workers(script: Script, loader: Loader) -> bool:
    """Whether every run is known to have workers."""
    argument = loader.argument("num_workers")
    runs = option_settings(script, loader, "num_workers")
    runs = runs or [loader.values("num_workers")]
    return argument.given and all(
        run.complete and bool(run.known) and all(_some(v.constant) for v in run.known)
        for run in runs
    )


def _some(constant: object) -> bool:
    return isinstance(constant, int) and constant is not True and constant > 0
