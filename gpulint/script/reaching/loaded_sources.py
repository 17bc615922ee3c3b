"""Calls that load a file of the project by its path, where there is none to load."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

from gpulint.script.neighbours import beginning

if TYPE_CHECKING:
    from gpulint.script.model import Script

_LOADS = (
    "imp.load_source",
    "importlib.machinery.SourceFileLoader",
    "importlib.util.spec_from_file_location",
)
_PATH = ("pathname", "path", "location")


def loads_nothing(script: Script, call: ast.Call) -> bool:
    """`imp.load_source(name, f"lib/tasks/{task}.py")`, of a folder without a task.

    All that lies there is what loads, and the `__init__.py` of packages.
    """
    project = script.index.project
    if project is None or script.index.qualified(call.func) not in _LOADS:
        return False
    given = [*call.args[1:2], *(k.value for k in call.keywords if k.arg in _PATH)]
    origins = [o.expression for node in given for o in script.resolver.origins(node)]
    starts = [_folder(script, path) if path is not None else "" for path in origins]
    if not starts or not all(starts):
        return False
    home = script.index.home(call).source.path
    above = [f for f in home.parents if f.is_relative_to(project.root)]
    found = [p for f in above for start in starts for p in project.below(f / start)]
    return home in found and all(
        path == home or path.name == "__init__.py" for path in found
    )


def _folder(script: Script, path: ast.expr) -> str:
    """`lib/tasks` of `os.path.join("lib/tasks", name)` and `f"lib/tasks/{name}"`."""
    if isinstance(path, ast.Call) and path.args:
        first = path.args[0]
        joins = script.index.qualified(path.func) == "os.path.join"
        if joins and isinstance(first, ast.Constant) and len(path.args) > 1:
            return str(Path(str(first.value)))
    text = beginning(script, path)
    return text.rpartition("/")[0]
