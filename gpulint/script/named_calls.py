"""Calls that may be of a method, where nothing says of which class an object is."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.index import Function

if TYPE_CHECKING:
    from gpulint.script.model import Script


def named_calls(script: Script, function: Function) -> list[ast.Call]:
    """Calls that may be of a method, by its name, in all files of the project.

    A `forward` by the attributes that hold the objects of its class.
    """
    home = script.index.home(function)
    owner, project = home.parent(function), home.project
    if not isinstance(owner, ast.ClassDef) or project is None:
        return []
    names = {function.name}
    if function.name == "forward":
        kept = kept_as(script, owner)
        names = set() if kept is None else kept
    found = []
    for name in sorted(names):
        for path in project.mentioning(f".{name}("):
            index = project.index(path)
            calls = index.calls_by_name.get(name, ()) if index is not None else ()
            found += [call for call in calls if isinstance(call.func, ast.Attribute)]
    return found


def kept_as(script: Script, owner: ast.ClassDef) -> set[str] | None:
    """The attributes that hold the objects of a class; None: some lie elsewhere."""
    names = set()
    for call in script.resolver.classes.constructors(owner):
        above = script.index.home(call).parent(call)
        targets = above.targets if isinstance(above, ast.Assign) else []
        kept = [target.attr for target in targets if isinstance(target, ast.Attribute)]
        if not kept or len(kept) < len(targets):
            return None
        names.update(kept)
    heirs = script.resolver.outside.descendants(owner)
    return None if any(True for _ in heirs) else names
