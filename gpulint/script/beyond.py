"""Loops that get a loader's batches from a generator between the two."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index.walk import walk

if TYPE_CHECKING:
    from gpulint.script.loaders import Loader
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script


def loops_beyond(script: Script, loader: Loader) -> list[Loop]:
    """Loops over `endless(loader)`, where that function yields the batches.

    And loops that ask it for each batch: `batches = endless(loader); next(batches)`.
    """
    found: dict[Loop, None] = {}
    for loop in loader.loops:
        function = loop.function
        if function is None or not _yields_batches(loop):
            continue
        for call in script.resolver.callers(function):
            values = [*call.args, *(k.value for k in call.keywords)]
            origins = [o for v in values for o in script.resolver.origins(v)]
            if any(loader.is_made_by(o.node) for o in origins):
                found.update(dict.fromkeys(_loops_over(script, call)))
    return list(found)


def _yields_batches(loop: Loop) -> bool:
    """Whether each batch is yielded as it is: `for batch in loader: yield batch`."""
    names = {target.id for target in loop.targets}
    return any(
        isinstance(node, ast.Yield)
        and isinstance(node.value, ast.Name)
        and node.value.id in names
        for node in walk(loop.node)
    )


def _loops_over(script: Script, call: ast.Call) -> Iterator[Loop]:
    """Loops of the file of a generator's call that take what it yields."""
    its = script.of(call)
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
