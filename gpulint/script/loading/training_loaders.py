"""Loaders that code of a file may serve, and which of them train on a GPU."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.script.loading.loaders import Loader
from gpulint.script.loading.pinning import goes_to_gpu

if TYPE_CHECKING:
    from gpulint.script.model import Script

MAX_FILES = 10  # that use a file, and are looked through for loaders


def loaders_around(script: Script) -> list[Loader]:
    """The loaders of this file, of its loops, and of the files that use it."""
    found = dict.fromkeys(script.loaders)
    for loop in script.training_loops:
        for iterable, _ in loop.items:
            for origin in script.resolver.origins(iterable):
                if origin.call is not None and not script.index.holds(origin.call):
                    its = script.of(origin.call).loaders
                    found.update((x, None) for x in its if x.call is origin.call)
    project = script.index.project
    for number, user in enumerate(project.users(script.index) if project else ()):
        if number >= MAX_FILES:
            break
        if "DataLoader" in user.source.text:
            found.update(dict.fromkeys(script.of(user.tree).loaders))
    return list(found)


def loaders_near(script: Script, owner: ast.ClassDef) -> list[Loader]:
    """The same, and the loaders of the files that name a class of this one."""
    found = dict.fromkeys(loaders_around(script))
    project = script.index.project
    for path in project.mentioning(owner.name)[:MAX_FILES] if project else ():
        user = project.index(path) if project else None
        if user is not None and "DataLoader" in user.source.text:
            found.update(dict.fromkeys(script.of(user.tree).loaders))
    return list(found)


def trains_on_gpu_with(loader: Loader) -> bool:
    """Whether a loop, no test, trains on a GPU with what a loader makes."""
    script = loader.script
    if loader.train is not True or script.is_test:
        return False
    return goes_to_gpu(script, loader)
