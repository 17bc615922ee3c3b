"""An iterative walk over `ast` by a table of each class's child fields."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SCOPES = frozenset((*FUNCTIONS, ast.ClassDef))
LOOPS = (ast.For, ast.AsyncFor, ast.While)

# Fields that hold no nodes, or none that matter: contexts, operators, plain names.
_NOT_CODE = frozenset(
    "ctx op ops type_comment type_ignores kind type_params id attr arg asname module "
    "level conversion is_async simple rest kwd_attrs".split()
)
_LEAVES = (ast.Constant, ast.alias, ast.Global, ast.Nonlocal, ast.MatchSingleton)
_WITH_GAPS = (ast.Dict, ast.arguments)  # `{**x}`, keyword-only without a default
FIELDS: dict[type, tuple[str, ...]] = {}


def fields(kind: type) -> tuple[str, ...]:
    """The fields of an `ast` class that may hold child nodes, in source order."""
    known = FIELDS.get(kind)
    if known is None:
        names = [n for n in getattr(kind, "_fields", ()) if n not in _NOT_CODE]
        if kind in _LEAVES:
            names = []
        if "name" in names and kind.__name__ != "TypeAlias":
            names.remove("name")
        if "decorator_list" in names:  # decorators stand before the definition
            names.remove("decorator_list")
            names.insert(0, "decorator_list")
        known = FIELDS[kind] = tuple(names)
    return known


def children(node: ast.AST) -> list[ast.AST]:
    """Direct child nodes in source order."""
    kind = node.__class__
    names = FIELDS.get(kind)
    found: list[ast.AST] = []
    for name in fields(kind) if names is None else names:
        value = getattr(node, name, None)
        if value.__class__ is list:
            found += value
        elif value is not None:
            found.append(value)
    return list(filter(None, found)) if kind in _WITH_GAPS else found


def walk(*roots: ast.AST) -> Iterator[ast.AST]:
    """Every node below and including the roots, in source order."""
    return itertools.chain.from_iterable((root, *_below(root)) for root in roots)


def _below(root: ast.AST) -> list[ast.AST]:
    """All nodes below one in source order; kept for statements with a body.

    The list is kept on the node itself: many rules walk over the same functions.
    """
    known: list[ast.AST] | None = getattr(root, "_below", None)
    if known is not None:
        return known
    found: list[ast.AST] = []
    stack = children(root)[::-1]
    while stack:
        node = stack.pop()
        found.append(node)
        if FIELDS.get(node.__class__) != ():
            stack += children(node)[::-1]
    if hasattr(root, "body"):
        root._below = found  # type: ignore[attr-defined]
    return found


def walk_scope(*roots: ast.AST) -> Iterator[ast.AST]:
    """Like `walk`, but does not enter functions, lambdas and classes below a root.

    The definitions themselves are yielded, with their decorators and defaults left
    out.
    """
    stack = list(reversed(roots))
    first = set(map(id, roots))
    while stack:
        node = stack.pop()
        yield node
        kind = node.__class__
        if (kind not in _SCOPES or id(node) in first) and FIELDS.get(kind) != ():
            stack += children(node)[::-1]


def dotted(node: ast.AST | None) -> str | None:
    """`a.b.c` for a chain of attributes on a name, else None."""
    tail = ""
    while node.__class__ is ast.Attribute:
        tail = f".{node.attr}{tail}"
        node = node.value
    return f"{node.id}{tail}" if node.__class__ is ast.Name else None


def same(a: ast.AST | None, b: ast.AST | None) -> bool:
    """Whether two expressions are written alike."""
    if a is None or b is None:
        return a is b
    return a is b or ast.dump(a) == ast.dump(b)
