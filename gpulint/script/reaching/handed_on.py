"""Functions that are handed to others, which call them with what they do not take."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.index import Function
from gpulint.index.walk import walk
from gpulint.script.decorators import has_plain_decorators
from gpulint.script.reaching.unused import reads_of

if TYPE_CHECKING:
    from gpulint.script.model import Script


def is_called_amiss(script: Script, function: Function) -> bool:
    """Whether nothing but `Trainer(make_loaders)` names a function, which raises there.

    What is seen of `Trainer` are functions or classes of the project, and all call it
    with too few parameters, too many or others.
    """
    its = script.of(function)
    if not has_plain_decorators(its.index, function):
        return False
    reads = (
        list(reads_of(its, function)) if isinstance(function, ast.FunctionDef) else []
    )
    return bool(reads) and all(_calls_amiss(script, function, read) for read in reads)


def _calls_amiss(script: Script, function: Function, read: ast.AST) -> bool:
    index = script.index.home(read)
    call = index.parent(read)
    if not isinstance(call, ast.Call) or read not in call.args:
        return False
    place = call.args.index(read)
    if any(isinstance(given, ast.Starred) for given in call.args[:place]):
        return False
    named = script.of(call).resolver.named(call.func)
    seen = [node for node in named if not isinstance(node, ast.alias)]
    receivers = [_run_by(script, node) for node in seen]
    return bool(receivers) and all(
        receiver is not None and _takes_amiss(script, function, receiver, place)
        for receiver in receivers
    )


def _run_by(script: Script, node: ast.AST) -> Function | None:
    """The function that a call of a function or class runs."""
    if isinstance(node, ast.ClassDef):
        return script.resolver.classes.methods(node).get("__init__")
    return node if isinstance(node, ast.FunctionDef) else None


def _takes_amiss(
    script: Script, function: Function, receiver: Function, place: int
) -> bool:
    """Whether a function calls what it is given, and never as that can be called."""
    bound = script.resolver.self_name(receiver) is not None
    names = [a.arg for a in (*receiver.args.posonlyargs, *receiver.args.args)][bound:]
    if place >= len(names):
        return False
    reads = [
        node
        for node in walk(receiver)
        if isinstance(node, ast.Name) and node.id == names[place]
    ]
    home = script.index.home(receiver)
    calls = [home.parent(node) for node in reads]
    return bool(reads) and all(
        isinstance(call, ast.Call)
        and call.func is node
        and not script.resolver.calls.takes(function, call)
        for node, call in zip(reads, calls, strict=True)
    )
