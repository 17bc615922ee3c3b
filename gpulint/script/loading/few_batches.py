"""Loaders whose loops stop after a few batches, such as samples to show."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.script.loading.batches_taken import is_looked_at, iterators, places
from gpulint.script.loops import Loop
from gpulint.script.reads import parameter_given
from gpulint.script.training.trials import stops_after, trains_little

if TYPE_CHECKING:
    from gpulint.script.loading.loaders import Loader
    from gpulint.script.model import Script

FEW = 16  # batches in each pass


def takes_few(script: Script, loader: Loader) -> bool:
    """Whether all loops over a loader stop after a few batches, trainings for good.

    Loops of functions that the loader is handed to are looked at where they stand.
    """
    if loader.loops:
        return all(stops_early(script.of(x.node), x) for x in loader.loops)
    taken = [p for p in places(script, loader) if not is_looked_at(script, p)]
    loops = [loop for place in taken for loop in _loops(script, place)]
    return bool(loops) and all(
        loop is not None and stops_early(script.of(loop.node), loop) for loop in loops
    )


def _loops(script: Script, place: ast.AST) -> Iterator[Loop | None]:
    """The loops that take batches of what stands here; None: it goes elsewhere."""
    taken = iterators(script, place)
    if taken:
        yield from map(script.loop_of, taken)
        return
    loop = _loop_over(script, place)
    call = script.index.parent(place)
    function = (
        script.resolver.calls.callee(call) if isinstance(call, ast.Call) else None
    )
    if loop is not None or function is None or not isinstance(call, ast.Call):
        yield loop
        return
    parameter = parameter_given(script, function, call, place)
    uses = script.resolver.flow(function).uses.items()
    reads = [n for n, reached in uses if any(d.node is parameter for d in reached)]
    for node in reads if parameter is not None else [place]:
        yield _loop_over(script, node)


def _loop_over(script: Script, node: ast.AST) -> Loop | None:
    """The loop whose iterable an expression is, wrapped in `enumerate` or not."""
    statement = script.index.statement(node)
    if not isinstance(statement, ast.For) or not script.index.inside(
        node, statement.iter
    ):
        return None
    return script.of(statement).loop_at(statement)


def stops_early(script: Script, loop: Loop) -> bool:
    """Whether a loop over batches has `if number == 4: break`, or trains as little."""
    if loop.train or loop.backward or loop.steps:
        return trains_little(script, loop)

    def is_few(limit: ast.expr) -> bool:
        if isinstance(limit, ast.BinOp) and isinstance(limit.op, ast.Sub):
            limit = limit.left  # of `shown - 1`
        if _is_given_few(script, limit):
            return True
        values = script.evaluator.values(limit)
        numbers = [v.constant for v in values.known]
        few = all(type(n) is int and n <= FEW for n in numbers)
        meant = values.complete or all(v.default for v in values.known)
        return meant and bool(numbers) and few

    return ends_at_once(loop) or stops_after(script.resolver, loop, is_few)


def is_tried_out(script: Script, loader: Loader) -> bool:
    """Whether nothing trains, and each pass over a loader ends with its first batch."""
    return (
        not script.training_loops
        and bool(loader.loops)
        and all(ends_at_once(loop) for loop in loader.loops)
    )


def ends_at_once(loop: Loop) -> bool:
    """Whether the last statement of a loop always leaves it."""
    return isinstance(loop.node.body[-1], (ast.Break, ast.Return))


def _is_given_few(script: Script, limit: ast.expr) -> bool:
    """Whether a limit is a parameter for which each call writes a small number."""
    function = script.index.function(limit)
    if function is None or not isinstance(limit, ast.Name):
        return False
    if any(d.kind != "parameter" for d in script.definitions(limit)):
        return False
    given = script.resolver.calls.arguments(function, limit.id)
    calls = script.resolver.calls.callers(function)
    return (
        bool(given)
        and len(calls) == len(given or ())
        and all(
            isinstance(node, ast.Constant)
            and type(node.value) is int
            and node.value <= FEW
            for node in given or ()
        )
    )
