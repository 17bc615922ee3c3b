"""Places that change a tensor in place or bind its name anew."""

from __future__ import annotations

import ast
from collections import defaultdict

from gpulint.index import FileIndex
from gpulint.index.walk import dotted

_LINKS = (ast.Subscript, ast.Attribute, ast.Call)


def mutations_by_name(index: FileIndex) -> dict[str, list[ast.AST]]:
    """All of a file in source order, by each name or attribute chain they change.

    `x.data[0] = 1` changes `x.data` and `x`.
    """
    found: dict[str, list[ast.AST]] = defaultdict(list)
    kinds = (ast.AugAssign, ast.Subscript, ast.Name, ast.Call, ast.keyword)
    changing = [
        (node, target)
        for kind in kinds
        for node in index.all(kind)
        for target in [_target(node)]
        if target is not None
    ]
    for node, first in sorted(changing, key=lambda pair: _position(pair[0])):
        target: ast.AST | None = first
        while target is not None:
            name = dotted(target)
            if name is not None:
                found[name].append(node)
            target = _inner(target)
    return found


def _position(node: ast.AST) -> tuple[int, int]:
    assert isinstance(node, (ast.expr, ast.stmt, ast.keyword))
    return node.lineno, node.col_offset


def _target(node: ast.AST) -> ast.AST | None:
    """What a node changes, if it changes anything."""
    if isinstance(node, ast.AugAssign):
        return node.target
    if isinstance(node, (ast.Subscript, ast.Name)):
        return None if isinstance(node.ctx, ast.Load) else node
    if isinstance(node, ast.keyword):
        return node.value if node.arg == "out" else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        in_place = node.func.attr.endswith("_") and node.func.attr[0] != "_"
        return node.func.value if in_place else None
    return None


def _inner(node: ast.AST) -> ast.AST | None:
    """`x.data` for `x.data[0]`, `x` for `x.data`."""
    if isinstance(node, ast.Call):
        return node.func
    return node.value if isinstance(node, (ast.Subscript, ast.Attribute)) else None
