"""Processes and threads that a program starts with what their function cannot take."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.index import Function
from gpulint.script.decorators import has_plain_decorators
from gpulint.script.reaching.surely_called import methods_of_self

if TYPE_CHECKING:
    from gpulint.script.model import Script

_MODULES = ("multiprocessing", "torch.multiprocessing")
_WORKERS = frozenset(["threading.Thread", *(f"{its}.Process" for its in _MODULES)])
_CONTEXTS = frozenset(f"{its}.get_context" for its in _MODULES)
_SPAWN = "torch.multiprocessing.spawn"
_OF_SPAWN = ("fn", "args")
_OF_WORKERS = ("group", "target", "name", "args", "kwargs")


def starts_amiss(script: Script, call: ast.Call) -> bool:
    """`Process(target=work, args=(queue,))`, of a `work` that needs more than that.

    It raises when it starts, so nobody gets what it should have made.
    """
    started = _started(script, call)
    if started is None:
        return False
    found, takes = _functions(script, started.func), script.resolver.calls.takes
    return bool(found) and not any(takes(function, started) for function in found)


def _started(script: Script, call: ast.Call) -> ast.Call | None:
    """The call of its function that a process makes, if all of it is written out."""
    spawns = script.index.qualified(call.func) == _SPAWN
    if not spawns and not _is_worker(script, call.func):
        return None
    names = _OF_SPAWN if spawns else _OF_WORKERS
    given: dict[str | None, ast.expr] = dict(zip(names, call.args, strict=False))
    given |= {keyword.arg: keyword.value for keyword in call.keywords}
    function = given.get(names[0] if spawns else names[1])
    values = given.get("args", ast.Tuple([]))
    options = given.get("kwargs", ast.Dict([], []))
    if function is None or None in given or any(map(_is_starred, call.args)):
        return None
    if not isinstance(values, (ast.Tuple, ast.List)) or not isinstance(
        options, ast.Dict
    ):
        return None
    rank = [ast.Constant(0)] if spawns else []
    keywords = [
        ast.keyword(str(key.value) if isinstance(key, ast.Constant) else None, value)
        for key, value in zip(options.keys, options.values, strict=True)
    ]
    return ast.Call(function, [*rank, *values.elts], keywords)


def _is_worker(script: Script, func: ast.expr) -> bool:
    """`Process` or `Thread`, or `Process` of what `get_context("spawn")` gives."""
    if script.index.qualified(func) in _WORKERS:
        return True
    if not isinstance(func, ast.Attribute) or func.attr != "Process":
        return False
    made = [origin.call for origin in script.resolver.origins(func.value)]
    return bool(made) and all(
        call is not None and script.index.qualified(call.func) in _CONTEXTS
        for call in made
    )


def _functions(script: Script, named: ast.expr) -> list[Function]:
    """The functions of the project that a name stands for; none if others may be."""
    if isinstance(named, ast.Attribute):
        found: list[Function] = methods_of_self(script, named)
        if found:
            return found if _are_plain(script, found) else []
    origins = script.resolver.origins(named)
    found = [o.node for o in origins if isinstance(o.node, Function) and not o.path]
    if len(found) < len(origins) or not _are_plain(script, found):
        return []
    methods = any(isinstance(script.index.parent(f), ast.ClassDef) for f in found)
    return [] if methods else found


def _are_plain(script: Script, functions: list[Function]) -> bool:
    return all(has_plain_decorators(script.index, its) for its in functions)


def _is_starred(node: ast.expr) -> bool:
    return isinstance(node, ast.Starred)
