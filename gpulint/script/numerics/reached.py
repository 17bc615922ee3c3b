"""What runs whenever some code of a step does, and what leads to it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gpulint.index import Function
from gpulint.index.walk import walk

if TYPE_CHECKING:
    from gpulint.script.model import Script

MAX_REACHED = 100  # functions and classes


def reached(script: Script, statements: Iterable[ast.AST]) -> list[ast.AST]:
    """Statements, the functions that they call, and modules that they may run.

    Those are all modules of this file, and of others what is called or made here.
    """
    roots: list[ast.AST] = list(statements)
    classes = script.index.classes.values()
    roots += [c for c in classes if script.modules.is_module_class(c)]
    return reached_from(script, roots)


def reached_from(script: Script, nodes: Iterable[ast.AST]) -> list[ast.AST]:
    """Nodes, the functions that they call, and the modules that they run or make."""
    return list(reached_in_turn(script, nodes))


def reached_in_turn(script: Script, nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The same one by one, near ones first; each is followed when it has been seen."""
    roots = list(nodes)
    for root in roots:
        yield root
        for step in _steps(script, root) if len(roots) < MAX_REACHED else ():
            roots += [r for r in step if r not in roots and len(roots) < MAX_REACHED]


def leads_to(script: Script, root: ast.AST) -> list[ast.AST]:
    """The functions and the modules that the calls below a node run or make."""
    return [part for step in _steps(script, root) for part in step]


def _steps(script: Script, root: ast.AST) -> list[list[ast.AST]]:
    """What each call below a root runs; kept for the other scripts of a project."""
    home = script.index.home(root)

    def runs() -> list[list[ast.AST]]:
        calls = [node for node in walk(root) if isinstance(node, ast.Call)]
        return [found for found in (_runs(script, c) for c in calls) if found]

    if home is script.index or home.project is None:
        return runs()
    return home.project.remembered("leads to", root, runs)


def _runs(script: Script, call: ast.Call) -> list[ast.AST]:
    """The functions or the modules of this project that a call may run or make."""
    functions = script.resolver.calls.callees(call)
    if functions:
        return list(functions)
    made = script.resolver.classes.named(call.func)
    owners = [made] if made is not None else script.resolver.classes.of(call.func)
    parts: list[ast.AST] = []
    for owner in owners:
        if script.modules.is_module_class(owner):
            parts += script.resolver.classes.bases(owner)
        elif made is None and (own := _called(script, owner)) is not None:
            parts.append(own)
    return parts


def _called(script: Script, owner: ast.ClassDef) -> Function | None:
    """What runs when an object of a class is called; of Keras, its `call`."""
    methods = script.resolver.classes.methods(owner)
    return methods.get("__call__") or methods.get("call")


def runs_a_model(script: Script, call: ast.Call) -> bool:
    """Whether a call is of a module, which may return probabilities."""
    return script.modules.is_module(call.func)
