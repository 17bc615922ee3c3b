"""Loops that get a loader's batches from a generator between the two."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from gpulint.index import Function
from gpulint.script.generators import yielded_whole

if TYPE_CHECKING:
    from gpulint.script.loading.loaders import Loader
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

MAX_FILES = 10  # that use a file, and are looked through for loops


def loops_beyond(script: Script, loader: Loader) -> list[Loop]:
    """Loops over `endless(loader)`, where that function yields the batches.

    And loops that ask it for each batch: `batches = endless(loader); next(batches)`, in
    this file or in one that the batches are handed to. And loops over an object whose
    `__iter__` does so.
    """
    found: dict[Loop, None] = {}
    for function in _generators(script, loader):
        owner = script.index.parent(function)
        if function.name == "__iter__" and isinstance(owner, ast.ClassDef):
            found.update(dict.fromkeys(_loops_over_objects(script, owner)))
        own = script.index.inside(loader.call, function)
        for call in script.resolver.calls.callers(function):
            values = [*call.args, *(k.value for k in call.keywords)]
            origins = [o for v in values for o in script.resolver.origins(v)]
            if own or any(loader.is_made_by(o.node) for o in origins):
                found.update(dict.fromkeys(_loops_over(script, loader, call)))
    return list(found)


def _generators(script: Script, loader: Loader) -> list[Function]:
    """Functions that yield each batch of a loader as it is."""
    around = {loop.function for loop in loader.loops}
    around.add(script.index.function(loader.call))
    resolver = script.resolver
    return [
        function
        for function in around
        if function is not None
        and any(
            loader.is_made_by(origin.node)
            for node in yielded_whole(resolver, function)
            for origin in resolver.origins(node)
        )
    ]


def _loops_over_objects(script: Script, owner: ast.ClassDef) -> Iterator[Loop]:
    """Loops over objects of a class, here and in files that use this one."""
    project = script.index.project
    users = islice(project.users(script.index), MAX_FILES) if project else ()
    for its in (script, *(script.of(user.tree) for user in users)):
        for loop in its.loops:
            if any(owner in its.resolver.classes.of(i) for i, _ in loop.items):
                yield loop


def _loops_over(script: Script, loader: Loader, call: ast.Call) -> Iterator[Loop]:
    """Loops that take what the generator of a call yields, in tests apart."""
    first = script.of(call)
    others = (script.of(index.tree) for index in loader.files)
    for its in dict.fromkeys([first, *others]):
        if its is not first and its.is_test:
            continue
        for loop in its.loops:
            asked = [
                node.args[0]
                for node in loop.calls
                if its.index.qualified(node.func) == "next" and node.args
            ]
            for iterable in [*(i for i, _ in loop.items), *asked]:
                if any(o.node is call for o in its.resolver.origins(iterable)):
                    yield loop
                    break
