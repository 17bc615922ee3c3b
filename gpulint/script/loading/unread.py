"""Loaders that are handed on, and that nobody reads there."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.index.walk import dotted

if TYPE_CHECKING:
    from gpulint.script.model import Script


def is_handed_to_none(script: Script, place: ast.AST) -> bool:
    """Whether a loader is handed on, and nobody reads more of it than its dataset.

    `return train_loader, test_loader` to callers that all are seen, and put each under
    a name of their own; `self.valid_dl = cycle(loader)` that nothing of the project
    reads; `loaders["target"] = loader` of a dict that goes to callers who ask it for
    other keys alone.
    """
    if _is_kept_for_none(script, place) or _is_keyed_for_none(script, place):
        return True
    returned, position = script.index.parent(place), None
    if isinstance(returned, ast.Tuple):
        position = returned.elts.index(place)  # type: ignore[arg-type]
        returned = script.index.parent(returned)
    function = script.index.function(place)
    if not isinstance(returned, ast.Return) or function is None:
        return False
    calls = script.resolver.calls.callers(function)
    return bool(calls) and all(_is_unread(script, c, position) for c in calls)


def _is_kept_for_none(script: Script, place: ast.AST) -> bool:
    """Whether nothing reads the attribute of `self` under which a loader is kept."""
    index, project = script.index, script.index.project
    around = index.parent(place)
    while isinstance(around, ast.Call):
        around = index.parent(around)
    around = place if isinstance(place, ast.Assign) else around
    target = around.targets[0] if isinstance(around, ast.Assign) else None
    owner = index.owner(place)
    if project is None or owner is None or not isinstance(target, ast.Attribute):
        return False
    if not project.files or any(
        True for _ in script.resolver.outside.descendants(owner)
    ):
        return False
    files = map(project.index, project.mentioning(f".{target.attr}"))
    return not any(
        isinstance(node, ast.Attribute)
        and (dotted(node.value) != "self" or index.inside(node, owner))
        for file in files
        if file is not None
        for node in file.reads.get(target.attr, ())
    )


def _is_keyed_for_none(script: Script, place: ast.AST) -> bool:
    """Whether a loader is put under a key that neither function nor callers read."""
    target = place.targets[0] if isinstance(place, ast.Assign) else None
    key = target.slice if isinstance(target, ast.Subscript) else None
    function = script.index.function(place)
    if not isinstance(target, ast.Subscript) or not isinstance(target.value, ast.Name):
        return False
    if not isinstance(key, ast.Constant) or not isinstance(function, ast.FunctionDef):
        return False
    holder = target.value.id
    returned = script.resolver.flow(function).returns
    if not returned or not all(_is_name(value, holder) for value in returned):
        return False
    if not _asks_for_others(script, function, holder, key.value):
        return False
    calls = script.resolver.calls.callers(function)
    return bool(calls) and all(_takes_others(script, call, key.value) for call in calls)


def _takes_others(script: Script, call: ast.Call, key: object) -> bool:
    """`loaders = load(args)`, of which the caller reads other keys."""
    its = script.of(call)
    above, scope = its.index.parent(call), its.index.scope(call)
    name = above.targets[0] if isinstance(above, ast.Assign) else None
    if not isinstance(name, ast.Name) or isinstance(scope, ast.Module):
        return False
    return _asks_for_others(its, scope, name.id, key)


def _asks_for_others(script: Script, scope: ast.AST, name: str, key: object) -> bool:
    """Whether all reads of a dict in a function are of other keys, or return it."""
    for node in script.index.reads.get(name, ()):
        if not isinstance(node, ast.Name) or not script.index.inside(node, scope):
            continue
        above = script.index.parent(node)
        asked = above.slice if isinstance(above, ast.Subscript) else None
        if isinstance(above, ast.Return) or _is_stored(above):
            continue
        if not isinstance(asked, ast.Constant) or asked.value == key:
            return False
    return True


def _is_stored(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)


def _is_name(node: ast.expr | None, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _is_unread(script: Script, call: ast.Call, position: int | None) -> bool:
    its = script.of(call)
    above = its.index.parent(call)
    targets = above.targets if isinstance(above, ast.Assign) else []
    name = targets[0] if len(targets) == 1 else None
    if position is not None and isinstance(name, (ast.Tuple, ast.List)):
        starred = any(isinstance(item, ast.Starred) for item in name.elts)
        name = (
            name.elts[position] if not starred and position < len(name.elts) else None
        )
    elif position is not None:
        return False
    scope = its.index.scope(call)
    if not isinstance(name, ast.Name):
        return False
    if isinstance(scope, ast.Module) and name.id != "_":
        return False  # others may import it
    reads = [
        node
        for node in its.index.reads.get(name.id, ())
        if isinstance(node, ast.Name) and its.index.inside(node, scope)
    ]
    around = map(its.index.parent, reads)
    return all(isinstance(a, ast.Attribute) and a.attr == "dataset" for a in around)
