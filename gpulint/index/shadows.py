"""Where a function or a loop binds the name of an import anew."""

from __future__ import annotations

import ast
import itertools
from typing import TYPE_CHECKING

from gpulint.index.walk import FUNCTIONS, walk_scope

if TYPE_CHECKING:
    from gpulint.index.build import FileIndex

_BINDERS = (*FUNCTIONS, ast.For)  # a class's own names are none of its methods'


class Shadows:
    """The imported names of a file that functions and loops bind anew, and these."""

    def __init__(self, index: FileIndex) -> None:
        self._index = index
        names = index.bound_names & index.imports.keys()
        found: dict[str, set[ast.AST]] = {}
        for name in index.all(ast.Name) if names else ():
            if name.id not in names or not isinstance(name.ctx, ast.Store):
                continue
            scope: ast.AST | None = index.scope(name)
            if isinstance(scope, ast.Module):
                scope = self._loop_of(name)
            if isinstance(scope, _BINDERS) and not self._is_inner(name):
                found.setdefault(name.id, set()).add(scope)
        for argument in index.all(ast.arg) if names else ():
            owner = index.parents.get(index.parents.get(argument, argument))
            if argument.arg in names and owner is not None:
                found.setdefault(argument.arg, set()).add(owner)
        self._scopes = {
            name: {s for s in scopes if not _means_outer(name, s)}
            for name, scopes in found.items()
        }

    def hide(self, name: str, node: ast.AST) -> bool:
        """Whether a function or loop around a place binds an imported name anew."""
        scopes = self._scopes.get(name, ())
        child = node
        for above in self._index.ancestors(node) if scopes else ():
            inside = isinstance(above, FUNCTIONS) and runs_in(above, child)
            looped = isinstance(above, ast.For) and child is not above.iter
            if above in scopes and (inside or looped):
                return True
            if inside and _means_outer(name, above):
                return False
            child = above
        return False

    def _loop_of(self, target: ast.AST) -> ast.AST | None:
        """The loop that binds a name to what it iterates."""
        child = target
        for above in self._index.ancestors(target):
            if isinstance(above, ast.stmt):
                bound = isinstance(above, ast.For) and child is above.target
                return above if bound else None
            child = above
        return None

    def _is_inner(self, name: ast.Name) -> bool:
        """Whether a comprehension binds a name, for itself alone."""
        above = itertools.takewhile(
            lambda node: not isinstance(node, ast.stmt), self._index.ancestors(name)
        )
        return any(isinstance(node, ast.comprehension) for node in above)


def _means_outer(name: str, scope: ast.AST) -> bool:
    """Whether a function declares a name global, or imports it itself."""
    return any(
        name in node.names
        if isinstance(node, (ast.Global, ast.Nonlocal))
        else any(name == bound_by(alias) for alias in node.names)
        for node in walk_scope(scope)
        if isinstance(node, (ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom))
    )


def bound_by(alias: ast.alias) -> str:
    """The name that an import binds: `torch` of `import torch.nn`."""
    return alias.asname or alias.name.partition(".")[0]


def runs_in(scope: ast.AST, child: ast.AST) -> bool:
    """Whether `child` is in the body of the scope, not a decorator or default."""
    if isinstance(scope, ast.Module):
        return True
    if isinstance(scope, ast.Lambda):
        return child is scope.body
    if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
        outside = child is scope.args or child is scope.returns
        return not outside and child not in scope.decorator_list
    return isinstance(scope, ast.ClassDef) and child in scope.body
