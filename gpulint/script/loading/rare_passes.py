"""Passes over a loader that a training makes once in many of its steps or epochs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index import Origin
from gpulint.index.walk import walk

if TYPE_CHECKING:
    from gpulint.script.loading.loaders import Loader
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

SELDOM = 500  # steps: their time is many times that of starting workers
SOME = 5  # epochs: that of the others is many times what a pass without training takes
MAX_DEPTH = 4


def passes_are_rare(script: Script, loader: Loader) -> bool:
    """Whether steps are counted between two passes: `if step % 1000 == 0: test()`.

    `SELDOM` or more of them, or a number that is not known, as in a settings file; or
    `SOME` epochs or more. Passes behind no loop come on top.
    """
    found = [
        rare
        for loop in loader.loops
        for rare in _are_rare(script, loader, loop.node, 0)
    ]
    return any(found) and False not in found


def _are_rare(
    script: Script, loader: Loader, node: ast.AST, depth: int
) -> Iterator[bool | None]:
    """For each way to a node whether it is rare; None: it leads through no loop."""
    its = script.of(node)
    around = its.loops_around(node)
    if around:
        steps = next((x for x in around if _is_step(its, x)), None)
        yield any(
            _is_seldom(its, node, loop, SELDOM if loop is steps else SOME)
            for loop in around
            if loop is steps or _passes_epochs(loop)
        )
        return
    function = its.index.function(node)
    callers = its.resolver.calls.callers(function) if function is not None else []
    if not callers or depth >= MAX_DEPTH:
        yield False if callers else None
        return
    giving = [call for call in callers if _gives(its, call, loader)]
    for call in giving or callers:
        yield from _are_rare(script, loader, call, depth + 1)


def _gives(script: Script, call: ast.Call, loader: Loader) -> bool:
    """Whether a call passes the loader."""
    values = [*call.args, *(k.value for k in call.keywords)]
    origins: list[Origin] = [o for v in values for o in script.resolver.origins(v)]
    return any(loader.is_made_by(origin.node) for origin in origins)


def _is_step(script: Script, loop: Loop) -> bool:
    """Whether one iteration of a loop is one step of training, as far as is seen."""
    owners = {script.loop_of(call) for call in loop.backward}
    return (loop.train or bool(loop.loaders)) and owners <= {loop, None}


def _is_seldom(script: Script, node: ast.AST, loop: Loop, least: int) -> bool:
    """Whether a node runs behind `if step % n == 0` in a loop, `n` at least `least`."""
    child = node
    for above in script.index.ancestors(node):
        if above is loop.node:
            return False
        if isinstance(above, ast.If) and child in above.body:
            parts = walk(above.test)
            if any(_is_long(script, part, loop, least) for part in parts):
                return True
        child = above
    return False


def _is_long(script: Script, node: ast.AST, loop: Loop, least: int) -> bool:
    """Whether `step % n` is of an `n` that lets many steps, or some epochs, pass."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mod):
        return False
    its = script.evaluator.values(node.right)
    numbers = [v.constant for v in its.known]
    if any(not isinstance(n, int) or n < least for n in numbers):
        return False
    return bool(numbers) or not _passes_epochs(loop)


def _passes_epochs(loop: Loop) -> bool:
    """Whether a loop passes epochs: it trains in each, or says so by its name."""
    return loop.kind == "epoch" or loop.counts_epochs
