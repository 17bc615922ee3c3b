"""The one statement that puts a model on its device, where there is just one."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.index import Move, Target
from gpulint.index.walk import dotted, walk

if TYPE_CHECKING:
    from gpulint.script.model import Script


def only_move(script: Script, model: ast.expr) -> Move | None:
    """The one statement that moves a model, where nothing else sets its name."""
    moves = [m for m in script.moves if m.target in (Target.ANY, Target.CUDA)]
    made = {origin.node for origin in script.resolver.origins(model)}
    own = [m for m in moves if _is_of(script, m, made)]
    if len(own) != 1 or not isinstance(moved_name(script, own[0]), ast.Name):
        return None
    statement = script.index.statement(own[0].call)
    scope = script.index.scope(statement)
    if _block(script, statement) is not scope:
        return None
    name = moved_name(script, own[0])
    assert isinstance(name, ast.Name)
    later = script.resolver.flow(scope).definitions.get(name.id, [])
    lines = (script.index.statement(definition.node).lineno for definition in later)
    if any(line > statement.lineno for line in lines):
        return None
    return own[0]


def _block(script: Script, statement: ast.stmt) -> ast.AST | None:
    """What a statement stands in, a main guard apart."""
    above = script.index.parent(statement)
    if isinstance(above, ast.If) and statement in above.body:
        guards = any(dotted(part) == "__name__" for part in walk(above.test))
        return script.index.parent(above) if guards else above
    return above


def _is_of(script: Script, move: Move, made: set[ast.AST]) -> bool:
    origins = {o.node for o in script.resolver.origins(move.call)}
    whole = {o.node for o in script.resolver.origins(move.receiver)}
    return bool(made & (origins | whole | {move.call, move.receiver}))


def moved_name(script: Script, move: Move) -> ast.expr:
    """The name that holds the model once it is moved."""
    statement = script.index.statement(move.call)
    if isinstance(statement, ast.Assign) and statement.value is move.call:
        return statement.targets[0]
    is_plain = isinstance(statement, ast.Expr) and statement.value is move.call
    return move.receiver if is_plain else move.call
