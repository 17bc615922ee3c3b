"""The dataset of a training loader: a variable that nobody else takes samples of."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.script.rewriting.edits import CannotFix

if TYPE_CHECKING:
    from gpulint.script.model import Script


def check_uses(script: Script, call: ast.Call, argument: ast.expr) -> None:
    """That nobody else takes samples: they lack what batches get."""
    index = script.index
    if call is argument:
        return
    above = index.parent(call)
    target = above.targets[0] if isinstance(above, ast.Assign) else None
    if not isinstance(target, ast.Name) or not isinstance(argument, ast.Name):
        raise CannotFix("the dataset may be used elsewhere as well")
    for use in uses_of(script, target):
        if use is not argument and not _looks_only(script, use):
            line = getattr(use, "lineno", 0)
            raise CannotFix(f"line {line} may take samples of the dataset")


def _looks_only(script: Script, use: ast.AST) -> bool:
    """`len(train_set)`, `train_set.classes`, a sampler that counts it."""
    above = script.index.parent(use)
    if isinstance(above, ast.Attribute):
        around = script.index.parent(above)
        called = isinstance(around, ast.Call) and around.func is above
        changes = "transform" in above.attr  # what it is made of may be changed there
        return isinstance(above.ctx, ast.Load) and not called and not changes
    name = script.index.qualified(getattr(above, "func", None)) or ""
    return isinstance(above, ast.Call) and (
        name in ("len", "print") or name.endswith("Sampler")
    )


def uses_of(script: Script, name: ast.Name) -> list[ast.AST]:
    """Where a variable is read that is bound once in its scope."""
    index = script.index
    scope = index.scope(name)
    bound = script.resolver.flow(scope).definitions.get(name.id, [])
    if len(bound) != 1:
        raise CannotFix(f"`{name.id}` has several values")
    same = (n for n in index.all(ast.Name) if n.id == name.id and n is not name)
    return [n for n in same if _reads(script, n, scope)]


def _reads(script: Script, node: ast.Name, scope: ast.AST) -> bool:
    found = script.definitions(node)
    return not found or any(script.index.scope(d.node) is scope for d in found)
