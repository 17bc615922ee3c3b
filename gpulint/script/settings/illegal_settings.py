"""Loader options in settings files that raise an error together."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpulint.index import Value, Values
from gpulint.script.settings.setting_values import is_setting, option_settings

if TYPE_CHECKING:
    from gpulint.script.loading.loaders import Loader
    from gpulint.script.model import Script

NEED_WORKERS = ("persistent_workers", "prefetch_factor")


@dataclass(frozen=True, eq=False)
class IllegalPair:
    """No workers beside an option that needs some, of one loader and one run."""

    option: str
    value: Value
    workers: Value
    loader: Loader


def illegal_settings(script: Script) -> list[IllegalPair]:
    """Each pair of values once."""
    found: dict[tuple[ast.expr, ast.expr], IllegalPair] = {}
    for loader in script.loaders:
        for pair in _pairs(script, loader):
            found.setdefault((pair.value.node, pair.workers.node), pair)
    return list(found.values())


def _pairs(script: Script, loader: Loader) -> Iterator[IllegalPair]:
    if loader.decided_by_runtime:
        return
    for option in NEED_WORKERS:
        for workers in _runs(script, loader, "num_workers"):
            if not workers.all_in(0):
                continue
            for run in _runs(script, loader, option):
                none, value = workers.known[0], run.known[0]
                if not _refused(script, option, run) or not _together(
                    script, value, none
                ):
                    continue
                if is_setting(script, value.node) or is_setting(script, none.node):
                    yield IllegalPair(option, value, none, loader)


def _runs(script: Script, loader: Loader, option: str) -> list[Values]:
    """What an option is, from settings files or written in the script."""
    argument = loader.argument(option)
    if not argument.given:
        return []
    its = option_settings(script, loader, option) or [loader.values(option)]
    return [run for run in its if run.complete and run.known]


def _refused(script: Script, option: str, run: Values) -> bool:
    """Whether `DataLoader` refuses a value where there are no workers."""
    if option == "persistent_workers":
        return run.all_in(True)
    older = script.torch_version is not None and script.torch_version < (2, 0)
    return all(
        isinstance(v.constant, int) and not (older and v.constant == 2)
        for v in run.known
    )


def _together(script: Script, one: Value, other: Value) -> bool:
    """Whether two values are of one run: of one file, or one of the script itself."""
    if is_setting(script, one.node) and is_setting(script, other.node):
        return script.index.home(one.node) is script.index.home(other.node)
    return not (one.default or other.default)
