"""Loops that take batches apart into another number of parts than they have."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index import Function
from gpulint.index.walk import walk_scope

if TYPE_CHECKING:
    from gpulint.script.loading.loaders import Loader
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script


def unpacks_other_parts(script: Script, statement: ast.stmt) -> bool:
    """Whether a statement raises, as no batch has as many parts as it names.

    `for x, y, z in loader`, or `x, y, z = batch` in such a loop, where each sample of
    the dataset has two parts. Batches of the project's own datasets, put together by
    torch or by a function of the project.
    """
    target, loop = _taken_apart(script, statement)
    if loop is None or not isinstance(target, (ast.Tuple, ast.List)):
        return False
    if any(isinstance(part, ast.Starred) for part in target.elts):
        return False
    counts = [_parts(script.of(x.call), x) for x in loop.loaders]
    return bool(counts) and all(n not in (None, len(target.elts)) for n in counts)


def _taken_apart(
    script: Script, statement: ast.stmt
) -> tuple[ast.expr | None, Loop | None]:
    """The target that a whole batch is bound to, and the loop that takes it."""
    loop = script.loop_at(statement)
    if loop is not None and len(loop.items) == 1:
        return loop.items[0][1], loop
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None, None
    batch = statement.value
    around = script.loop_of(statement)
    if not isinstance(batch, ast.Name) or around is None or len(around.items) != 1:
        return None, None
    bound = [d.node for d in script.definitions(batch)]
    whole = around.items[0][1]
    return (statement.targets[0], around) if bound == [whole] else (None, None)


def _parts(script: Script, loader: Loader) -> int | None:
    """The number of parts of each batch of a loader; None: not known."""
    counts = set()
    for function in _makers(script, loader):
        counts.add(None if function is None else _returned_parts(script, function))
    return counts.pop() if len(counts) == 1 else None


def _makers(script: Script, loader: Loader) -> Iterator[Function | None]:
    """The functions that give a batch its parts; None: one that is not known."""
    collate = loader.argument("collate_fn")
    if not collate.absent:
        nodes = collate.nodes
        origins = [o.node for node in nodes for o in script.resolver.origins(node)]
        yield from (n if isinstance(n, ast.FunctionDef) else None for n in origins)
        return
    for node in loader.argument("dataset").nodes:
        for origin in script.resolver.origins(node):
            made = origin.call
            owner = (
                script.resolver.classes.named(made.func) if made is not None else None
            )
            methods = (
                script.resolver.classes.methods(owner) if owner is not None else {}
            )
            yield methods.get("__getitem__")


def _returned_parts(script: Script, function: Function) -> int | None:
    """The length of the tuples that are all that a function returns."""
    if any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in walk_scope(function)):
        return None
    lengths = {
        len(value.elts)
        if isinstance(value, ast.Tuple)
        and not any(isinstance(part, ast.Starred) for part in value.elts)
        else None
        for value in script.of(function).resolver.flow(function).returns
    }
    return lengths.pop() if len(lengths) == 1 else None
