"""Functions and classes of a module that no program of the project uses."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gpulint.index.walk import walk
from gpulint.script.neighbours import programs

if TYPE_CHECKING:
    from gpulint.index import FileIndex
    from gpulint.script.model import Script

_PACKAGED = ("setup.py", "setup.cfg", "pyproject.toml")
# How a program may choose among all that a module holds, by a name of its options.
_BY_NAME = re.compile(
    r"__dict__\[|\bglobals\(\)|\bfire\.Fire|(?<![.\w])(?<!def )eval\("
    r"|\bgetattr\(\s*[\w.]+\s*,\s*(?!['\"])"
)
_IMPORTED = ("import_module", "__import__")
Kept = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def left_over(script: Script, rows: Iterable[int]) -> set[int]:
    """Which lines stand in a function or class that no file of a project names.

    Only in modules that other files import, of projects that are no library: what
    these offer is for others to call.
    """
    around = {row: _around(script.index, row) for row in rows}
    unused = {kept for kept in set(around.values()) if _is_left_over(script, kept)}
    return {row for row, kept in around.items() if kept in unused}


def _is_left_over(script: Script, kept: Kept | None) -> bool:
    if kept is None or kept.decorator_list or script.source.path.stem == "hubconf":
        return False
    project = script.index.project
    if project is None or not project.files or not project.is_read:
        return False
    root, folder = project.root, script.source.path.parent
    if any(project.is_file(root / name) for name in _PACKAGED):
        return False
    if any(project.in_folder(place, "*.ipynb") for place in {root, folder}):
        return False
    said = (*_IMPORTED, f'"{kept.name}"', f"'{kept.name}'")
    if _named_in(script.index, kept) or any(map(project.mentions, said)):
        return False
    home, *users = programs(script)
    return (
        bool(users)
        and not home.source.has(_BY_NAME)
        and not any(
            user.source.has(_BY_NAME) or _uses(user, kept.name) for user in users
        )
    )


def _around(index: FileIndex, row: int) -> Kept | None:
    for statement in index.tree.body:
        last = getattr(statement, "end_lineno", None) or row
        if isinstance(statement, Kept) and statement.lineno <= row <= last:
            return statement
    return None


def _named_in(index: FileIndex, kept: Kept) -> bool:
    """Whether its own file names it outside of it."""
    return any(
        _name(node) == kept.name
        for statement in index.tree.body
        if statement is not kept
        for node in walk(statement)
    )


def _name(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.alias):
        return node.name.rpartition(".")[2]
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value  # `__all__`, a registry
    return None


def _uses(user: FileIndex, name: str) -> bool:
    """Whether a file may take a name from what it imports, or passes all of it on."""
    if user.source.path.name == "__init__.py" and user.stars:
        return True
    for node in walk(user.tree):
        if isinstance(node, (ast.alias, ast.Attribute)):
            if _name(node) == name:
                return True
        elif isinstance(node, ast.Name) and node.id == name and user.stars:
            return True
    return False
