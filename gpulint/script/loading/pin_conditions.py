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
from gpulint.script.set_before import is_set_at

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
    return device_condition(
        script, _handed_device(script, loader) or _own_device(script, loader)
    )


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
        known = name is not None and is_set_at(script, tests[0], loader.call)
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


def _handed_device(script: Script, loader: Loader) -> ast.expr | None:
    """`self.device` of `infer(model, loader, self.device)`, whose loop moves to it."""
    scope = script.index.scope(loader.call)
    found: dict[str, ast.expr] = {}
    for loop in loader.loops:
        for move in script.of(loop.node).moves_in([loop]):
            if loop.function is None or not isinstance(move.device, ast.Name):
                return None
            calls = script.resolver.calls.callers(loop.function)
            near = [call for call in calls if script.index.scope(call) is scope]
            for call in near if len(near) == len(calls) else ():
                given, _ = script.resolver.calls.given(
                    call, loop.function, move.device.id
                )
                found.update((script.text(node), node) for node in given)
    device = next(iter(found.values()), None) if len(found) == 1 else None
    return (
        device
        if device is not None and is_set_at(script, device, loader.call)
        else None
    )


def _own_device(script: Script, loader: Loader) -> ast.expr | None:
    """`self.device` of a class that makes a loader, and moves batches out of sight."""
    owner = script.index.owner(loader.call)
    own = script.resolver.self_name(script.index.scope(loader.call))
    for read in script.index.reads.get("device", ()) if owner is not None else ():
        named = dotted(read) == f"{own}.device" and script.index.owner(read) is owner
        if named and is_set_at(script, read, loader.call):
            return read
    return None


def _is_free(script: Script, move: Move) -> bool:
    """Whether a device is CUDA by a default alone, in whose place another may come."""
    return move.device is not None and script.devices.is_free(move.device)
