"""Datasets that a dict or list holds, and what else may reach and change them there.

`DataLoader(sets["train"])`, where another line says `sets["train"].epoch = epoch`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index.build import last_name
from gpulint.script.loading.loader_classes import LOADER

if TYPE_CHECKING:
    from gpulint.index import Origin
    from gpulint.script.loading.loaders import Loader
    from gpulint.script.model import Script

_TAKES = ("get", "pop", "setdefault")  # methods that give what a dict holds
# What takes a dataset, or a dict of some, and changes nothing in it.
_LOOKS = frozenset("len print str repr type isinstance hasattr sorted format".split())


def holders(script: Script, loader: Loader) -> list[ast.expr]:
    """The dicts or lists that a loader takes its dataset from: of `sets[name]`."""
    return [
        origin.expression.value
        for origin in _origins(script, loader)
        if isinstance(origin.expression, ast.Subscript)
    ]


def _origins(script: Script, loader: Loader) -> Iterator[Origin]:
    for node in loader.argument("dataset").nodes:
        yield from script.resolver.origins(node)


def values_of_holders(script: Script, loader: Loader) -> Iterator[ast.expr]:
    """What makes the datasets of a holder: its values, or the call that made it."""
    for its in holders(script, loader):
        for origin in script.resolver.origins(its):
            if origin.expression is not None:
                yield from _parts(origin.expression)


def uses_of_holders(script: Script, loader: Loader) -> Iterator[tuple[ast.AST, bool]]:
    """Places that may change a dataset in its holder, and whether only when they run.

    False: the holder, or a dataset of it, goes out of sight there: it is returned,
    passed on, got from it by a method or a loop, or gets another name. Reads of
    attributes and lengths, and loaders that take a dataset, change nothing.
    """
    for origin in _origins(script, loader):
        call = origin.call
        if origin.kind == "element" or (call is not None and last_name(call) in _TAKES):
            yield origin.node, False
    for its in holders(script, loader):
        yield from _uses_of(script, loader, its)


def _uses_of(
    script: Script, loader: Loader, holder: ast.expr
) -> Iterator[tuple[ast.AST, bool]]:
    name = _name(holder)
    known = {d.kind for d in script.definitions(holder)} == {"assign"}
    if name is None or not known:
        yield holder, False  # it may have another name elsewhere
        return
    for index in loader.files_of_dataset:
        for kind in (ast.Name, ast.Attribute):
            for node in index.all(kind):
                if _name(node) == name:
                    yield from _use(script, node)


def _name(node: ast.AST) -> str | None:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def _use(script: Script, node: ast.expr) -> Iterator[tuple[ast.AST, bool]]:
    above = script.index.parent(node)
    if not isinstance(getattr(node, "ctx", None), ast.Load):
        if not _is_made_anew(above):
            yield node, False
        return
    if isinstance(above, ast.Attribute):
        if above.attr != "keys":
            yield node, False
        return
    if isinstance(above, ast.Subscript) and above.value is node:
        yield from _element(script, above)
    elif not _is_looked_at(script, node):
        yield node, False


def _is_made_anew(statement: ast.AST | None) -> bool:
    """`sets = {…}` of objects that have no other name."""
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)):
        return False
    parts = _parts(statement.value)
    return bool(parts) and all(isinstance(part, ast.Call) for part in parts)


def _parts(made: ast.expr | None) -> list[ast.expr]:
    """The values of a dict or list that is written; else what makes it."""
    if isinstance(made, ast.Dict):
        return made.values
    if isinstance(made, (ast.List, ast.Tuple)):
        return made.elts
    if isinstance(made, ast.DictComp):
        return [made.value]
    if isinstance(made, ast.ListComp):
        return [made.elt]
    return [made] if isinstance(made, ast.Call) else []


def _element(script: Script, node: ast.Subscript) -> Iterator[tuple[ast.AST, bool]]:
    """What becomes of `sets["train"]`."""
    if not isinstance(node.ctx, ast.Load):
        yield node, True
        return
    above = script.index.parent(node)
    if isinstance(above, ast.Attribute):
        if _is_changed(script, above):
            yield node, True
    elif not _is_looked_at(script, node):
        yield node, False


def _is_changed(script: Script, node: ast.Attribute) -> bool:
    """Whether an attribute is set, or anything is called or set below it."""
    top: ast.AST = node
    while True:
        if not isinstance(getattr(top, "ctx", None), ast.Load):
            return True
        above = script.index.parent(top)
        if isinstance(above, ast.Call) and above.func is top:
            return True
        inner = isinstance(above, (ast.Attribute, ast.Subscript)) and above.value is top
        if not inner:
            return False
        assert above is not None
        top = above


def _is_looked_at(script: Script, node: ast.expr) -> bool:
    """Whether a call only looks at what it is given, or makes a loader of it."""
    above = script.index.parent(node)
    if isinstance(above, ast.keyword):
        above = script.index.parent(above)
    if isinstance(above, ast.Compare):
        return True  # `"val" in sets`
    if not isinstance(above, ast.Call) or above.func is node:
        return False
    return last_name(above) in _LOOKS or script.index.qualified(above.func) == LOADER
