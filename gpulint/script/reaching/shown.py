"""Main guards of modules that only show what these give: a network, called once."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.index.calls import OF_MODULES, TENSOR_METHODS
from gpulint.index.module_search import is_main_guard
from gpulint.index.walk import LOOPS, walk
from gpulint.script.by_name import Kept
from gpulint.script.neighbours import programs

if TYPE_CHECKING:
    from gpulint.script.model import Script

_PACKAGES = frozenset("numpy os random sys time torch torchinfo torchsummary".split())
_SAYS = frozenset("print len sum int float str list range round type".split())
_METHODS = TENSOR_METHODS.union(OF_MODULES, ("cpu", "eval", "named_children", "train"))


def is_shown(script: Script, node: ast.AST) -> bool:
    """Whether a place is in a main guard that makes networks and calls them once.

    Of a module that other files import, and that loops over no batches itself.
    """
    tree = script.index.tree
    guard = next((a for a in script.index.ancestors(node) if a in tree.body), None)
    if not isinstance(guard, ast.If) or not is_main_guard(guard):
        return False
    if script.training_loops or script.eval_loops or len(programs(script)) == 1:
        return False
    nodes = [part for statement in guard.body for part in walk(statement)]
    if guard.orelse or any(isinstance(n, (*LOOPS, Kept)) for n in nodes):
        return False
    made = {
        target.id
        for assign in nodes
        if isinstance(assign, ast.Assign)
        for target in assign.targets
        if isinstance(target, ast.Name)
    }
    calls = (n for n in nodes if isinstance(n, ast.Call))
    return all(_shows(script, call, made) for call in calls)


def _shows(script: Script, call: ast.Call, made: set[str]) -> bool:
    """Whether a call makes an object, calls one that is `made`, or looks at a result.

    What a function of the file makes is given a name: `net = resnet50().cuda()`.
    """
    func, index = call.func, script.index
    head = (index.qualified(func) or "").partition(".")[0]
    if head in _PACKAGES:
        return True
    if isinstance(func, ast.Attribute):
        return func.attr in _METHODS
    if not isinstance(func, ast.Name):
        return isinstance(func, ast.Call)  # `Net()(x)`
    if func.id in made | _SAYS or func.id in index.classes:
        return True
    functions = {s.name for s in index.tree.body if isinstance(s, ast.FunctionDef)}
    kept = isinstance(index.parent(call), (ast.Assign, ast.Attribute))
    return kept and func.id in functions
