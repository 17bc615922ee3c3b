"""Generators that hand on what they go over: `for batch in loader: yield batch`."""

from __future__ import annotations

import ast

from gpulint.index import Definition, Function, Resolver
from gpulint.index.walk import dotted, walk_scope


def yielded_whole(resolver: Resolver, function: Function) -> list[ast.expr]:
    """What a generator goes over to yield each part as it is.

    `yield from loader`, `for batch in loader: yield batch`, numbered or not.
    """
    found: list[ast.expr] = []
    home = resolver.index.home(function)
    yields = any(map(home.all, (ast.Yield, ast.YieldFrom)))
    for node in walk_scope(*function.body) if yields else ():
        if isinstance(node, ast.YieldFrom):
            found.append(node.value)
        elif isinstance(node, ast.Yield) and isinstance(node.value, ast.Name):
            for its in resolver.definitions(node.value):
                whole = _gone_over(its) if its.kind == "for" else None
                found += [whole] if whole is not None else []
    return found


def _gone_over(definition: Definition) -> ast.expr | None:
    """What a loop's variable takes each part of; also behind `enumerate`."""
    over = definition.value
    if not definition.path:
        return over
    numbered = isinstance(over, ast.Call) and dotted(over.func) == "enumerate"
    if not numbered or definition.path != (1,):
        return None
    assert isinstance(over, ast.Call)
    return over.args[0] if over.args else None
