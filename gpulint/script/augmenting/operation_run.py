"""The statements of a dataset's method that augment a sample, and do nothing else."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.index import Function
from gpulint.index.walk import dotted, walk
from gpulint.script.augmenting.sample_reader import Operation
from gpulint.script.reaching.drawn import Numbers
from gpulint.script.rewriting.edits import CannotFix

if TYPE_CHECKING:
    from gpulint.script.model import Script

Run = tuple[ast.stmt, ...]


def run_of(
    script: Script, owner: ast.ClassDef, entry: Function, operations: list[Operation]
) -> tuple[Run, Function]:
    """The statements of all operations, in one block with nothing between them.

    And the method of the dataset's class `owner` that they stand in.
    """
    index = script.index
    done = list(dict.fromkeys(s for o in operations for s in o.statements))
    for draw in (d for o in operations for d in o.draws):
        if not any(index.inside(draw, s) for s in done):
            done.append(index.statement(draw))
    block = _block(script, done[0])
    if not all(s in block for s in done):
        raise CannotFix("the operations do not stand together")
    places = [block.index(s) for s in done]
    run = tuple(block[min(places) : max(places) + 1])
    if any(s not in done and not _is_draw(script, s) for s in run):
        raise CannotFix("other code stands between the operations")
    method = _method(script, owner, entry, run)
    _check_names(script, method, run, {i for o in operations for i in o.images})
    return run, method


def _method(script: Script, owner: ast.ClassDef, entry: Function, run: Run) -> Function:
    """The method of a run, where it is the dataset's own and called as such."""
    index, resolver = script.index, script.resolver
    method = index.function(run[0])
    its_self = resolver.self_name(method) if method is not None else None
    if method is None or its_self is None or method not in owner.body:
        raise CannotFix("the operations stand in no method of the dataset")
    for call in resolver.calls.callers(method) if method is not entry else []:
        caller = index.function(call)
        mine = resolver.self_name(caller) if caller in owner.body else None
        if mine is None or dotted(call.func) != f"{mine}.{method.name}":
            raise CannotFix(f"`{method.name}` is called for another object")
    return method


def _block(script: Script, statement: ast.stmt) -> list[ast.stmt]:
    """The statements that a statement stands among."""
    above = script.index.parent(statement)
    for name in ("body", "orelse", "finalbody"):
        statements = getattr(above, name, None)
        if isinstance(statements, list) and statement in statements:
            return statements
    raise CannotFix("the operations do not stand together")


def _is_draw(script: Script, statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.Assign):
        return False
    numbers, value = Numbers(script), statement.value
    return numbers.read(value) is not None or numbers.chance(value) is not None


def _check_names(script: Script, method: Function, run: Run, images: set[str]) -> None:
    """That what is bound beside the images is read in the run alone."""
    bound = set()
    for node in walk(*run):
        if isinstance(node, ast.NamedExpr):
            raise CannotFix("a condition binds a name")
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
    for node in walk(*method.body):
        if not isinstance(node, ast.Name) or node.id not in bound - images:
            continue
        if not any(script.index.inside(node, s) for s in run):
            raise CannotFix(f"`{node.id}` is used for something else as well")
