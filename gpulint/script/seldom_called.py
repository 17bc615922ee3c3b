"""Modules and methods whose every known call stands where few steps come."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.index import Function

if TYPE_CHECKING:
    from gpulint.script.model import Script

MAX_CALLS = 4  # from a function back to what its loop does now and then


def is_seldom_called(script: Script, function: Function, depth: int = 0) -> bool:
    """Whether all calls of a method stand behind `step % n == 0`, or lead there.

    The calls that are seen, in any file: a `forward` by the attributes that hold the
    objects of its class, another method by its name, where nothing says of which class
    an object is. False where an object is kept in another way, or nothing calls it.
    """
    if depth > MAX_CALLS:
        return False
    calls = script.resolver.callers(function) or _by_name(script, function)
    calls = [call for call in calls if not script.of(call).is_test]
    return bool(calls) and all(_is_seldom(script.of(c), c, depth) for c in calls)


def _is_seldom(script: Script, call: ast.Call, depth: int) -> bool:
    if script.runners.is_rare(call):
        return True
    function = script.index.function(call)
    if function is None or script.loops_around(call):
        return False
    return is_seldom_called(script, function, depth + 1)


def _by_name(script: Script, function: Function) -> list[ast.Call]:
    """Calls that may be of a method, in all files of the project."""
    home = script.index.home(function)
    owner, project = home.parent(function), home.project
    if not isinstance(owner, ast.ClassDef) or project is None:
        return []
    names = {function.name}
    if function.name == "forward":
        kept = _kept_as(script, owner)
        names = set() if kept is None else kept
    found = []
    for name in sorted(names):
        for path in project.mentioning(f".{name}("):
            index = project.index(path)
            calls = index.calls_by_name.get(name, ()) if index is not None else ()
            found += [call for call in calls if isinstance(call.func, ast.Attribute)]
    return found


def _kept_as(script: Script, owner: ast.ClassDef) -> set[str] | None:
    """The attributes that hold the objects of a class; None: some lie elsewhere."""
    names = set()
    for call in script.resolver.constructors(owner):
        above = script.index.home(call).parent(call)
        targets = above.targets if isinstance(above, ast.Assign) else []
        kept = [target.attr for target in targets if isinstance(target, ast.Attribute)]
        if not kept or len(kept) < len(targets):
            return None
        names.update(kept)
    heirs = script.resolver.outside.descendants(owner)
    return None if any(True for _ in heirs) else names
