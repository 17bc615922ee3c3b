"""When to pin a loader's batches: code that is true where they go to CUDA."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gpulint.index import Move, Target
from gpulint.index.build import last_name
from gpulint.index.walk import dotted
from gpulint.script.branches import all_of, in_body
from gpulint.script.loading.loaders import Loader
from gpulint.script.rewriting.device_code import (
    device_at,
    device_condition,
    is_guarded,
)
from gpulint.script.set_before import is_set_at, means_the_same

if TYPE_CHECKING:
    from gpulint.script.model import Script


def pin_condition(script: Script, loader: Loader) -> tuple[str, tuple[str, ...]]:
    """Code for `pin_memory`: true on CUDA; and the imports it needs."""
    moves = script.moves_in(loader.loops)
    device = device_at(script, loader.call, loader.loops)
    if device is not None and all(m.device is not None for m in moves):
        return device_condition(script, device)
    named = _switch(script, loader, moves)
    if named is not None:
        return named, ()
    if moves and all(
        m.target is Target.CUDA
        and not is_guarded(script, m)
        and (last_name(m.call) == "cuda" or not _is_free(script, m))
        for m in moves
    ):
        return "True", ()
    return device_condition(script, None)


def _switch(script: Script, loader: Loader, moves: Iterable[Move]) -> str | None:
    """`transfer`, where all moves stand in `if transfer: x = x.cuda()`.

    It means the same where the loader is made.
    """
    scope = script.index.scope(loader.call)
    found: set[str | None] = set()
    for move in moves:
        if last_name(move.call) != "cuda" or not script.index.inside(move.call, scope):
            return None
        tests = _tests_around(script, move.call, scope)
        name = dotted(tests[0]) if len(tests) == 1 else None
        known = name is not None and means_the_same(script, tests[0], loader.call)
        known = known and is_set_at(script, tests[0], loader.call)
        found.add(name if known else None)
    return found.pop() if len(found) == 1 else None


def _tests_around(script: Script, node: ast.AST, scope: ast.AST) -> list[ast.expr]:
    """What has to hold for a place to be come to, up to a function around it."""
    tests, child = [], node
    for above in script.index.ancestors(node):
        if above is scope:
            break
        if isinstance(above, (ast.If, ast.IfExp)) and in_body(above, child):
            tests += all_of(above.test, True)
        elif isinstance(above, (ast.If, ast.IfExp)) and child is not above.test:
            tests.append(ast.UnaryOp(ast.Not(), above.test))
        child = above
    return tests


def _is_free(script: Script, move: Move) -> bool:
    """Whether a device is CUDA by a default alone, in whose place another may come."""
    return move.device is not None and script.devices.is_free(move.device)
