"""What the `forward` of models and losses evaluates, as a step of a loop runs it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gpulint.index import FileIndex, Function
from gpulint.index.walk import dotted, walk
from gpulint.script.every_step import EveryStep, Part
from gpulint.script.modelling.models import makers
from gpulint.script.numerics.reached import reached_in_turn
from gpulint.script.training.evaluation import called_module

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

_LIBRARIES = ("torch.", "numpy.", "scipy.")
MAX_DEPTH = 2  # modules that a module runs, and those that they do
_READS = re.compile(  # a cheap look
    r"\.(item|tolist|cpu)\(|\b(float|int|bool)\(|\bis(nan|inf|finite)\("
)


def module_parts(
    script: Script, loop: Loop, parts: Iterable[Part]
) -> Iterator[tuple[Script, list[Part]]]:
    """The parts of each `forward` that a step surely runs and that may read numbers.

    With a script in which only that call runs it: its parameters are what it passes.
    """
    seen: set[Function] = set()
    todo = [(script, list(parts), 0)]
    for its, among, depth in todo:
        for part in among:
            forward = _forward(its, part.node)
            if forward is None or forward in seen:
                continue
            seen.add(forward)
            if not _may_read(its, forward):
                continue
            assert isinstance(part.node, ast.Call)
            alone = its.called_only_by({forward: [part.node]})
            inside = list(EveryStep(alone, loop).parts_of(forward, part))
            yield alone, inside
            if depth < MAX_DEPTH:
                todo.append((alone, inside, depth + 1))


def is_asked(script: Script, node: ast.AST) -> bool:
    """Whether a module needs a number, or may, to go on: in a test, or as a size.

    Also by the name that it gets: `change = norm.item()`, `if change < limit: break`.
    What is copied whole, or made an integer, is taken to be needed.
    """
    if not _is_read_alone(node):
        return True
    its = script.of(node).index
    child = node
    for above in its.ancestors(node):
        if isinstance(above, (ast.If, ast.IfExp, ast.While)):
            return child is above.test
        if isinstance(above, (ast.Slice, ast.Compare, ast.BoolOp, ast.Subscript)):
            return True
        if isinstance(above, ast.Call) and _computes(its, above, child):
            return True
        if isinstance(above, ast.Assign):
            return _decides(its, above)
        if isinstance(above, ast.stmt):
            return isinstance(above, ast.For) and child is above.iter
        child = above
    return False


def _is_read_alone(node: ast.AST) -> bool:
    """`loss.item()` and `float(loss)`."""
    func = node.func if isinstance(node, ast.Call) else None
    named = func.attr if isinstance(func, ast.Attribute) else dotted(func)
    return named in ("item", "float")


def _computes(its: FileIndex, call: ast.Call, given: ast.AST) -> bool:
    """Whether a call takes a number to compute with, as far as its name tells."""
    if given is call.func:
        return False
    name = its.qualified(call.func) or ""
    return name.startswith(_LIBRARIES) or name in (
        "int",
        "range",
        "min",
        "max",
        "round",
    )


def _decides(its: FileIndex, statement: ast.Assign) -> bool:
    """Whether a test, a size or a computation uses what gets the number."""
    targets = {dotted(target) for target in statement.targets} - {None}
    for used in walk(its.scope(statement)):
        if (
            not isinstance(used, (ast.Name, ast.Attribute))
            or dotted(used) not in targets
        ):
            continue
        child: ast.AST = used
        for above in its.ancestors(used):
            if (
                isinstance(above, (ast.If, ast.While, ast.IfExp))
                and child is above.test
            ):
                return True
            if isinstance(above, (ast.Slice, ast.Compare)):
                return True
            if isinstance(above, ast.Subscript) and child is above.slice:
                return True
            if isinstance(above, ast.Call) and _computes(its, above, child):
                return True
            if isinstance(above, ast.stmt):
                break
            child = above
    return False


def _forward(script: Script, node: ast.AST) -> Function | None:
    """The `forward` that a call surely runs, of a class of the project."""
    if not isinstance(node, ast.Call) or script.resolver.calls.callees(node):
        return None
    owner = _class(script, called_module(node))
    if owner is None or not script.modules.is_module_class(owner):
        return None
    methods = script.resolver.classes.methods(owner)
    return methods.get("forward") if "__call__" not in methods else None


def _class(script: Script, called: ast.expr) -> ast.ClassDef | None:
    """The one class that a module surely has, wrappers and moves taken off."""
    classes = script.resolver.classes
    owners: set[ast.ClassDef | None] = set(classes.of(called))
    if not owners or classes.may_be_others(called):
        made = makers(script, called)
        owners = {classes.named(call.func) if call else None for call in made}
    return owners.pop() if len(owners) == 1 else None


def _may_read(script: Script, function: Function) -> bool:
    """Whether the class of a method, or what it calls or runs, may read a number."""
    its = script.of(function)
    owner, project = its.index.owner(function) or function, its.index.project

    def reads() -> bool:
        below = reached_in_turn(its, [owner])
        return any(_READS.search(script.text(part)) for part in below)

    return project.remembered("reads below", owner, reads) if project else reads()
