"""Whether a name surely has its value where other code runs."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpulint.index import Definition
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


def means_the_same(script: Script, node: ast.expr, at: ast.AST) -> bool:
    """Whether an expression has at `at` the value that it has where it stands.

    A name of the same function, or of the file, that gets no other in between, or an
    attribute that `__init__` alone sets, and that is not where `at` runs.
    """
    if isinstance(node, ast.Constant):
        return True
    name, made = dotted(node), script.definitions(node)
    here, there = script.index.scope(node), script.index.scope(at)
    own = script.resolver.self_name(here)
    if name is None or not made:
        return False
    if own is not None and name.startswith(f"{own}."):
        return _is_of_init(script, made, node, at)
    scopes = {_scope_of(script, d) for d in made}
    if here is there or scopes == {there}:  # or of a function around
        return all(isinstance(d.node, ast.arg) or _stands_before(d, at) for d in made)
    alone = len(made) == 1 and made[0].kind == "assign"
    return alone and scopes == {script.index.tree}


def _scope_of(script: Script, definition: Definition) -> ast.AST | None:
    """Where a definition gives a name its value: of a parameter, its function."""
    node = definition.node
    if isinstance(node, ast.arg):
        return script.index.parent(script.index.parent(node) or node)
    return script.index.scope(node)


def _stands_before(definition: Definition, at: ast.AST) -> bool:
    places = [
        (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))
        for node in (definition.node, at)
    ]
    return places[0] < places[1]


def _is_of_init(
    script: Script, made: Sequence[Definition], node: ast.expr, at: ast.AST
) -> bool:
    """Whether `__init__` has set an attribute for good where a method runs."""
    there = script.index.scope(at)
    owner = script.index.owner(node)
    last = (dotted(node) or "").rpartition(".")[2]
    if owner is None or last in script.resolver.classes.methods(owner):
        return False
    scopes = [script.index.scope(d.node) for d in made]
    if not all(getattr(scope, "name", "") == "__init__" for scope in scopes):
        return False
    if there in scopes:
        return all(_stands_before(d, at) for d in made)
    if not isinstance(there, ast.FunctionDef):
        return False
    calls = script.resolver.calls.callers(there)
    return not any(script.of(call).index.scope(call) in scopes for call in calls)


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
