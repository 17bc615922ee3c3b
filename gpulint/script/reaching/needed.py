"""Attributes that a function surely reads of what it is given, whoever calls it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index import Function
from gpulint.index.walk import walk_scope
from gpulint.script.reaching.evaluated import evaluated_in
from gpulint.script.reaching.surely_called import surely_called

if TYPE_CHECKING:
    from gpulint.script.model import Script

MAX_CALLS = 3  # that hand on what they are given


def needed(
    script: Script, function: Function, name: str, depth: int = MAX_CALLS
) -> frozenset[str]:
    """The attributes that each call of a function reads of one of its parameters.

    Also in functions to which it hands it on, and of `self.config`, where a
    constructor keeps it. None where it may return before, or a test decides, nor where
    the parameter's file gives it to code that is not seen: that may set what is read.
    """
    its = script.of(function)
    project = script.index.project
    if depth <= 0 or project is None:
        return frozenset(_needed(its, function, name, depth) if depth > 0 else ())
    return project.remembered(
        f"needed of {name}, {depth}",
        function,
        lambda: frozenset(_needed(its, function, name, depth)),
    )


def _needed(script: Script, function: Function, name: str, depth: int) -> Iterator[str]:
    if isinstance(function, ast.AsyncFunctionDef) or _yields(function):
        return
    if script.evaluator.command_line.missing.is_handed_out(script.index, name):
        return
    for node in evaluated_in(script, function.body):
        if isinstance(node, ast.Attribute):
            read = isinstance(node.ctx, ast.Load) and not node.attr.startswith("__")
            if read and _is_given(script, node.value, name):
                yield node.attr
        elif (
            isinstance(node, ast.Call)
            and depth > 1
            and any(_is_given(script, value, name) for value in _values(node))
        ):
            yield from _handed_on(script, node, name, depth - 1)


def _yields(function: Function) -> bool:
    return any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in walk_scope(function))


def _values(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def _handed_on(script: Script, call: ast.Call, name: str, depth: int) -> frozenset[str]:
    """What all functions need, one of which a call surely runs with the same."""
    found = [
        frozenset().union(
            *(
                needed(script, function, parameter, depth)
                for parameter, value in given_to(script, call, function)
                if _is_given(script, value, name)
            )
        )
        for function in surely_called(script, call)
    ]
    return frozenset.intersection(*found) if found else frozenset()


def given_to(
    script: Script, call: ast.Call, function: Function
) -> Iterator[tuple[str, ast.expr]]:
    """The parameters of a function for which a call passes something, and what."""
    its = function.args
    for parameter in (*its.posonlyargs, *its.args, *its.kwonlyargs):
        given, clear = script.resolver.calls.given(call, function, parameter.arg)
        if clear and len(given) == 1:
            yield parameter.arg, given[0]


def _is_given(script: Script, node: ast.expr, name: str) -> bool:
    """Whether an expression holds what a parameter was given, whatever has run."""
    if isinstance(node, ast.Name):
        reached = script.definitions(node) if node.id == name else ()
        return bool(reached) and all(d.kind == "parameter" for d in reached)
    if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
        return False
    scope = script.index.scope(node)
    if script.resolver.self_name(scope) != node.value.id:
        return False
    reached = script.resolver.flow(scope).uses.get(node, ())
    return bool(reached) and all(
        d.kind == "assign"
        and not d.path
        and isinstance(d.value, ast.Name)
        and _is_given(script, d.value, name)
        for d in reached
    )
