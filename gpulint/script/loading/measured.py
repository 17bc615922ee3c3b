"""Loaders that are only asked how long they are."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.index import Definition, Function
from gpulint.script.loading.prepared import prepares

if TYPE_CHECKING:
    from gpulint.script.loading.loaders import Loader
    from gpulint.script.model import Script

MAX_PREPARED = 2  # times that Accelerate gives a loader back


def is_only_measured(script: Script, loader: Loader) -> bool:
    """Whether a function makes a loader for `len(loader)` alone, or for nothing.

    None of its batches is loaded, also not of what Accelerate prepares of it.
    """
    made = _taken(script, loader.call, None)
    return len(made) == 1 and _is_measured(script, made[0], MAX_PREPARED)


def _taken(script: Script, call: ast.Call, position: int | None) -> list[Definition]:
    """The names of a function that a call's result is given to, or a part of it."""
    scope = script.index.scope(call)
    if not isinstance(scope, Function):
        return []
    ways = ((),) if position is None else ((position,),)
    return [
        definition
        for its in script.resolver.flow(scope).definitions.values()
        for definition in its
        if definition.value is call and definition.path in ways
    ]


def _is_measured(script: Script, made: Definition, depth: int) -> bool:
    scope = script.index.scope(made.node)
    if made.kind != "assign" or not isinstance(made.node, ast.Name):
        return False
    kept = script.index.statement(made.node)
    if not isinstance(kept, ast.Assign) or len(kept.targets) > 1:
        return False  # also under another name
    if kept.value is not made.value or _is_shared(script, made.name):
        return False
    named = (n for n in script.index.all(ast.Name) if n.id == made.name)
    within = (n for n in named if script.index.inside(n, scope))
    if any(script.index.scope(name) is not scope for name in within):
        return False  # a function inside may use it
    return all(_measures(script, use, depth) for use in script.uses(made))


def _is_shared(script: Script, name: str) -> bool:
    """Whether a function shares a name with others: `global loader`."""
    shared = [statement.names for statement in script.index.all(ast.Global)]
    shared += [statement.names for statement in script.index.all(ast.Nonlocal)]
    return any(name in names for names in shared)


def _measures(script: Script, use: ast.AST, depth: int) -> bool:
    """`len(loader)`, or `loader, model = accelerator.prepare(loader, model)`."""
    call = script.index.parent(use)
    if not isinstance(call, ast.Call) or use not in call.args:
        return False
    if isinstance(call.func, ast.Name) and call.func.id == "len":
        return "len" not in script.index.bound_names
    if not prepares(call) or not depth:
        return False
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        return False
    position = call.args.index(use) if len(call.args) > 1 else None
    taken = _taken(script, call, position)
    return len(taken) == 1 and _is_measured(script, taken[0], depth - 1)
