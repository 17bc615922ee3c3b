"""Training loops that are trials: a few steps, or what is taken back behind them."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gpulint.index.walk import dotted, walk_scope

if TYPE_CHECKING:
    from gpulint.index import Definition, FileIndex
    from gpulint.index.resolve import Resolver
    from gpulint.script.loops import Loop

FEW = 16  # steps
_REACHES = (ast.Gt, ast.GtE, ast.Eq)


def is_trial(resolver: Resolver, loop: Loop) -> bool:
    """Whether a loop ends after a few steps, or the optimizer is put back behind it.

    So do searches for a learning rate, and estimates of gradients before training.
    """
    return _is_taken_back(resolver.index, loop) or any(
        isinstance(branch, ast.If)
        and isinstance(branch.body[-1], (ast.Break, ast.Return))
        and _counts_to_few(resolver, branch.test, loop)
        for branch in loop.node.body
    )


def _is_taken_back(index: FileIndex, loop: Loop) -> bool:
    """`kept = optimizer.state_dict()` before, `optimizer.load_state_dict` behind."""
    function = index.function(loop.node)
    if function is None:
        return False
    end = loop.node.end_lineno or loop.node.lineno
    calls = [n for n in walk_scope(function) if isinstance(n, ast.Call)]
    saved = [c for c in calls if c.lineno < loop.node.lineno]
    restored = [c for c in calls if c.lineno > end]
    return not _with(loop.steps, "step").isdisjoint(
        _with(saved, "state_dict") & _with(restored, "load_state_dict")
    )


def _with(calls: Iterable[ast.Call], method: str) -> set[str]:
    """The names of which a method is called."""
    funcs = [c.func for c in calls]
    held = [f.value for f in funcs if isinstance(f, ast.Attribute) and f.attr == method]
    return {name for name in map(dotted, held) if name is not None}


def _counts_to_few(resolver: Resolver, test: ast.expr, loop: Loop) -> bool:
    """`number >= limit`, also beside `limit is not None`, of a limit that is low."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return any(_counts_to_few(resolver, part, loop) for part in test.values)
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], _REACHES):
        return False
    if not isinstance(test.left, ast.Name) or not _counts(resolver, test.left, loop):
        return False
    limits = [o.expression for o in resolver.origins(test.comparators[0])]
    return bool(limits) and all(
        isinstance(limit, ast.Constant)
        and type(limit.value) is int
        and 0 < limit.value <= FEW
        for limit in limits
    )


def _counts(resolver: Resolver, name: ast.Name, loop: Loop) -> bool:
    """Whether a name is the number of the iteration: not of those without progress."""
    index = resolver.index
    for definition in resolver.definitions(name):
        value = definition.value
        small = isinstance(value, ast.Constant) and value.value in (0, 1)
        statement = index.statement(definition.node)
        if definition.kind == "augment":
            known = small and statement in loop.node.body
        elif definition.kind == "assign":
            known = small and not index.inside(statement, loop.node)
        else:
            known = _is_number(index, definition, loop)
        if not known:
            return False
    return True


def _is_number(index: FileIndex, definition: Definition, loop: Loop) -> bool:
    """`number` of `for number, batch in enumerate(loader)`."""
    iterable = getattr(loop.node, "iter", None)
    return (
        definition.kind == "for"
        and definition.path[:1] == (0,)
        and definition.value is iterable
        and isinstance(iterable, ast.Call)
        and index.qualified(iterable.func) == "enumerate"
    )
