"""Batches that a loop hands to a function of another file, which moves them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.index import Function, Target
from gpulint.script.reads import parameter_given

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

MAX_DEPTH = 2  # functions between the loop and the one that moves


def hands_to_mover(script: Script, loop: Loop) -> bool:
    """Whether each step hands its batch to what moves it: `model.set_input(batch)`."""
    if not script.batches.any:
        return False
    return any(
        _is_moved(script, call, given, MAX_DEPTH)
        for call in script.index.calls_below(loop.node)
        for given in (*call.args, *(k.value for k in call.keywords))
        if script.batches.loop_of(given) is loop
    )


def _is_moved(script: Script, call: ast.Call, given: ast.expr, depth: int) -> bool:
    """Whether a function that a call runs moves what one of its arguments holds."""
    return any(
        _moves(script, function, parameter.arg, depth)
        for function in script.resolver.calls.callees(call)
        if (parameter := parameter_given(script, function, call, given)) is not None
    )


def _moves(script: Script, function: Function, name: str, depth: int) -> bool:
    its = script.of(function)
    for call in its.index.calls_below(function):
        move = its.devices.move(call)
        to_gpu = move is not None and move.target in (Target.CUDA, Target.ANY)
        if move is not None and to_gpu and _root(move.receiver) == name:
            return True
        for given in call.args if depth else ():
            if _root(given) == name and _is_moved(its, call, given, depth - 1):
                return True
    return False


def _root(node: ast.expr) -> str | None:
    """The name whose parts an expression takes: `batch` of `batch["image"].float()`."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None
