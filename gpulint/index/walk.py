"""An iterative walk over `ast` by a table of each class's child fields."""

from __future__ import annotations

import ast
import itertools
import operator
from collections.abc import Callable, Iterator
from typing import Any

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SCOPES = frozenset((*FUNCTIONS, ast.ClassDef))
LOOPS = (ast.For, ast.AsyncFor, ast.While)
_ORDERS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)

# Fields that hold no nodes, or none that matter: contexts, operators, plain names.
_NOT_CODE = frozenset(
    "ctx op ops type_comment type_ignores kind type_params id attr arg asname module "
    "level conversion is_async simple rest kwd_attrs".split()
)
_LEAVES = (ast.Constant, ast.alias, ast.Global, ast.Nonlocal, ast.MatchSingleton)
WITH_GAPS = (ast.Dict, ast.arguments)  # `{**x}`, keyword-only without a default
_Getter = Callable[[ast.AST], tuple[Any, ...]]


def fields(kind: type) -> tuple[str, ...]:
    """The fields of an `ast` class that may hold child nodes, in source order."""
    names = [n for n in getattr(kind, "_fields", ()) if n not in _NOT_CODE]
    if kind in _LEAVES:
        return ()
    if "name" in names and kind.__name__ != "TypeAlias":
        names.remove("name")
    if "decorator_list" in names:  # decorators stand before the definition
        names.remove("decorator_list")
        names.insert(0, "decorator_list")
    return tuple(names)


class _Getters(dict[type, _Getter | None]):
    """For a class of `ast`: gives what its child fields hold; None: it has none."""

    def __missing__(self, kind: type) -> _Getter | None:
        names = fields(kind)
        getter: _Getter | None = operator.attrgetter(*names) if names else None
        if len(names) == 1:
            getter = _single(names[0])
        self[kind] = getter
        return getter


def _single(name: str) -> _Getter:
    get = operator.attrgetter(name)
    return lambda node: (get(node),)


GETTERS = _Getters()


def children(node: ast.AST) -> list[ast.AST]:
    """Direct child nodes in source order."""
    kind = node.__class__
    found: list[ast.AST] = []
    getter = GETTERS[kind]
    if getter is None:
        return found
    for value in getter(node):
        if value.__class__ is list:
            found += value
        elif value is not None:
            found.append(value)
    return list(filter(None, found)) if kind in WITH_GAPS else found


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
        if GETTERS[node.__class__] is not None:
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
        if GETTERS[kind] is not None and (kind not in _SCOPES or id(node) in first):
            stack += children(node)[::-1]


def dotted(node: ast.AST | None) -> str | None:
    """`a.b.c` for a chain of attributes on a name, else None."""
    tail = ""
    while node.__class__ is ast.Attribute:
        tail = f".{node.attr}{tail}"
        node = node.value
    return f"{node.id}{tail}" if node.__class__ is ast.Name else None


def whole_of(node: ast.expr) -> ast.expr:
    """What an expression is a part of: `batch` of `batch.images[0]`, itself if none."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node


def compares_values(node: ast.AST) -> bool:
    """`a > b` or `a == b`, not `a is b` or `a in b`: of tensors one for each number."""
    return isinstance(node, ast.Compare) and isinstance(node.ops[0], _ORDERS)


def is_text(node: ast.expr) -> bool:
    """A string, with values in it or without."""
    text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return text or isinstance(node, ast.JoinedStr)


def same(a: ast.AST | None, b: ast.AST | None) -> bool:
    """Whether two expressions are written alike."""
    if a is None or b is None:
        return a is b
    return a is b or ast.dump(a) == ast.dump(b)
