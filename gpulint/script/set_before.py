"""Whether a name surely has its value where other code runs."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.index.walk import dotted

if TYPE_CHECKING:
    from gpulint.script.model import Script

MAX_CALLERS = 3  # from a function back to the top of its file


def is_set_at(script: Script, node: ast.expr, at: ast.AST) -> bool:
    """Whether a name (or `script.x`) surely has its value where `at` runs."""
    if isinstance(node, ast.Constant):
        return True
    name = dotted(node)
    if name is None:
        return False
    head, _, rest = name.partition(".")
    scope = script.index.scope(at)
    if rest and script.resolver.self_name(scope) == head:
        owner = script.index.owner(at)
        defined = (
            script.resolver.classes.member(owner, rest) if owner is not None else []
        )
        inside = [d for d in defined if script.index.scope(d.node) is scope]
        if not inside:
            return bool(defined) and getattr(scope, "name", "") != "__init__"
        return any(precedes(script, d.node, at) for d in inside)
    local = script.resolver.flow(scope).definitions.get(name if rest else head, [])
    if local:
        return any(precedes(script, d.node, at) for d in local)
    if head in script.resolver.flow(scope).definitions or rest:
        return False
    top = script.resolver.flow(script.index.tree).definitions.get(head, [])
    return any(
        d.kind == "assign"
        and _unconditional(script, d.node)
        and not _runs_before(script, scope, d.node, MAX_CALLERS)
        for d in top
    )


def _runs_before(
    script: Script, scope: ast.AST, definition: ast.AST, depth: int
) -> bool:
    """Whether the file may call a function before a line at its top has run."""
    if not isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    row = getattr(definition, "lineno", 0)
    for read in script.index.reads.get(scope.name, ()):  # called, or handed on
        around = script.index.scope(read)
        if around is script.index.tree:
            if read.lineno < row:
                return True
        elif depth and _runs_before(script, around, definition, depth - 1):
            return True
    return False


def precedes(script: Script, definition: ast.AST, at: ast.AST) -> bool:
    """Whether a definition has run, on every path, when `at` runs."""
    if isinstance(definition, ast.arg):
        return True
    before = script.index.statement(definition)
    block = script.index.parent(before)
    if not script.index.inside(at, block or script.index.tree) or block is None:
        return False
    for body in ("body", "orelse", "finalbody"):
        statements = getattr(block, body, None)
        if isinstance(statements, list) and before in statements:
            holder = [s for s in statements if script.index.inside(at, s)]
            return bool(holder) and before.lineno < holder[0].lineno
    return False


def _unconditional(script: Script, definition: ast.AST) -> bool:
    return script.index.parent(script.index.statement(definition)) is script.index.tree
