"""Which names of a module's own level a statement binds, and which it reads."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from gpulint.index.walk import COMPREHENSIONS

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_Names = frozenset[str]


def bound(statements: Iterable[ast.AST]) -> set[str]:
    """Names that statements bind in their own scope.

    Without those of functions and classes in them, and without what they import
    from modules beside their own: the one file has these at its own level.
    """
    names: set[str] = set()
    elsewhere: set[str] = set()
    stack = list(statements)
    while stack:
        node = stack.pop()
        below = ast.iter_child_nodes(node)
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                names.add(node.name)
                below = iter([*node.decorator_list, *_defaults(node.args)])
            case ast.ClassDef():
                names.add(node.name)
                below = iter([*node.decorator_list, *node.bases])
            case ast.Lambda():
                below = iter(_defaults(node.args))
            case ast.Name(ctx=ast.Store() | ast.Del()):
                names.add(node.id)
            case ast.Import() | ast.ImportFrom(level=0):
                names.update(a.asname or a.name.partition(".")[0] for a in node.names)
            case ast.ExceptHandler(name=str(name)) | ast.MatchStar(name=str(name)):
                names.add(name)
            case ast.MatchAs(name=str(name)) | ast.MatchMapping(rest=str(name)):
                names.add(name)
            case ast.Global():
                elsewhere.update(node.names)
        if isinstance(node, COMPREHENSIONS):
            walrus = [n for n in ast.walk(node) if isinstance(n, ast.NamedExpr)]
            below = iter([n.target for n in walrus])
        stack += below
    return names - elsewhere


def module_names(node: ast.AST) -> list[ast.Name]:
    """Names in a statement that mean something of the module's level, or a builtin.

    Loads and stores, also those in nested functions. Parameters and variables of
    functions that have the same name are left out.
    """
    return list(_names(node, frozenset(), frozenset()))


def _names(node: ast.AST, hidden: _Names, here: _Names) -> Iterator[ast.Name]:
    """`hidden`: what functions around the node bind; `here`: a class body as well."""
    if isinstance(node, ast.Name):
        if node.id not in here:
            yield node
    elif isinstance(node, (*_FUNCTIONS, ast.Lambda)):
        body: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else []
        outside = [*_defaults(node.args), *_annotations(node.args)]
        if isinstance(node, _FUNCTIONS):
            body = list(node.body)
            outside += [*node.decorator_list, *([node.returns] if node.returns else [])]
        for part in outside:
            yield from _names(part, hidden, here)
        arguments = {n.arg for n in ast.walk(node.args) if isinstance(n, ast.arg)}
        inner = (hidden | arguments | bound(body)) - _declared_global(body)
        for part in body:
            yield from _names(part, inner, inner)
    elif isinstance(node, ast.ClassDef):
        for part in (*node.decorator_list, *node.bases, *node.keywords):
            yield from _names(part, hidden, here)
        for part in node.body:
            yield from _names(part, hidden, hidden | bound(node.body))
    elif isinstance(node, COMPREHENSIONS):
        yield from _names(node.generators[0].iter, hidden, here)
        targets = bound(generator.target for generator in node.generators)
        parts = [p for p in ast.iter_child_nodes(node) if p is not node.generators[0]]
        first = node.generators[0]
        for part in (*parts, first.target, *first.ifs):
            yield from _names(part, hidden | targets, hidden | targets)
    else:
        for child in ast.iter_child_nodes(node):
            yield from _names(child, hidden, here)


def _declared_global(body: Iterable[ast.AST]) -> set[str]:
    nodes = (node for part in body for node in ast.walk(part))
    return {
        name for node in nodes if isinstance(node, ast.Global) for name in node.names
    }


def _defaults(arguments: ast.arguments) -> list[ast.AST]:
    return [d for d in (*arguments.defaults, *arguments.kw_defaults) if d is not None]


def _annotations(arguments: ast.arguments) -> list[ast.AST]:
    every = [n for n in ast.walk(arguments) if isinstance(n, ast.arg)]
    return [n.annotation for n in every if n.annotation is not None]
