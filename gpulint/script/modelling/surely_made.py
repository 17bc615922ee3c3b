"""Whether a program that trains or evaluates surely makes the module of some code."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from gpulint.index.walk import walk
from gpulint.script.branches import branches_of
from gpulint.script.neighbours import programs

if TYPE_CHECKING:
    from gpulint.script.model import Script

MAX_MODULES = 5  # around a module, each made by the one around it
_RUNS = re.compile(r"rainer\b|\.fit\(|\.backward\(|no_grad|\.eval\(\)|\.train\(")


def is_surely_made(script: Script, function: ast.AST) -> bool:
    """Whether a method's class is made where no choice is left to somebody's options.

    By a function, or by modules around it that are made so, of files that train or
    evaluate. Of what is chosen by a name, or made out of sight, nobody knows that.
    """
    owner = script.index.home(function).parent(function)
    return isinstance(owner, ast.ClassDef) and _is_made(script, owner, MAX_MODULES)


def _is_made(script: Script, owner: ast.ClassDef, depth: int) -> bool:
    resolver = script.resolver
    classes = [owner, *resolver.outside.descendants(owner)]
    calls = [call for one in classes for call in resolver.classes.constructors(one)]
    return any(_is_sure(script.of(call), call, depth) for call in calls)


def _is_sure(script: Script, call: ast.Call, depth: int) -> bool:
    if script.is_test or any(
        _chooses(branch) for branch, _ in branches_of(script.index, call)
    ):
        return False
    function = script.index.function(call)
    around = script.index.parent(function) if function is not None else None
    if isinstance(around, ast.ClassDef) and script.modules.is_module_class(around):
        return depth > 0 and _is_made(script, around, depth - 1)
    return any(index.source.has(_RUNS) for index in programs(script))


def _chooses(branch: ast.AST) -> bool:
    """Whether a branch is taken for a word: `if args.model == "gat":`."""
    test = branch.test if isinstance(branch, (ast.If, ast.IfExp)) else None
    return test is not None and any(
        isinstance(node, ast.Compare)
        and any(
            isinstance(part, ast.Constant) and isinstance(part.value, str)
            for side in (node.left, *node.comparators)
            for part in walk(side)
        )
        and not _is_main(node)
        for node in walk(test)
    )


def _is_main(test: ast.Compare) -> bool:
    return isinstance(test.left, ast.Name) and test.left.id == "__name__"
