"""Functions, classes and methods that no program of the project names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from gpulint.index import FileIndex, Project
from gpulint.index.outside import IMPORTS
from gpulint.index.targets import qualified_name
from gpulint.index.walk import walk
from gpulint.index.words import has_word
from gpulint.script.by_name import (
    Kept,
    chooses_among_its_own,
    chooses_by_name,
    holds_all,
)
from gpulint.script.decorators import has_plain_decorators
from gpulint.script.neighbours import MAX_FILES, programs
from gpulint.script.reaching.offered import is_a_command, is_offered

if TYPE_CHECKING:
    from gpulint.script.model import Script

_OF_OBJECT = re.compile(r"\bgetattr\(\s*([\w.]+)\s*,(?!\s*['\"])")
# Names that are put together, and what takes any method of an object.
_CHOOSES = re.compile(
    r"\bgetattr\([^,()]+,\s*['\"][^'\"]*['\"]\s*(\+|%|\.format)"
    r"|\b(__getattribute__|methodcaller|getmembers|Fire|CLI)\("
    r"|(?<![.\w])(eval|exec)\("
    r"|__dict__\["
)
# Bases that call no method of a class but these.
_PLAIN = ("object", "torch.nn.Module", "abc.ABC", "ABC")
_OF_MODULES = ("forward", "extra_repr")


def left_over(script: Script, rows: Iterable[int]) -> set[int]:
    """Which lines stand in a function, class or method that no file of a project names.

    Only in modules that other files import, of projects that are no library: what
    these offer is for others to call. And in notebooks, which nobody imports.
    """
    around = {row: _around(script.index, row) for row in rows}
    unused = {kept for kept in set(around.values()) if _is_left_over(script, kept)}
    methods = {row: _method(kept, row) for row, kept in around.items()}
    idle = {m for m in set(methods.values()) if m and is_never_called(script, m)}
    return {r for r in around if around[r] in unused or methods[r] in idle}


def _is_left_over(script: Script, kept: Kept | None) -> bool:
    if kept is None or not has_plain_decorators(script.index, kept):
        return False
    if script.source.path.suffix == ".ipynb":
        magic = re.compile(rf"^[ \t]*# [%!].*\b{kept.name}\b", re.MULTILINE)
        named = chooses_among_its_own(script.index) or chooses_by_name(script.index)
        named = named or script.source.has(magic)
        return not named and not _named_in(script.index, kept)
    project = script.index.project
    if project is None or is_offered(script, kept.name):
        return False
    if is_a_command(script, kept.name):
        return False
    said = (*IMPORTS, f'"{kept.name}"', f"'{kept.name}'")
    if _named_in(script.index, kept) or any(map(project.mentions, said)):
        return False
    if project.targeting(qualified_name(script.index, kept)):
        return False
    home, *users = programs(script)
    known = 0 < len(users) < MAX_FILES  # there may be more than are followed
    if not known or chooses_among_its_own(home):
        return False
    return not any(
        _uses(user, kept.name) or (chooses_by_name(user) and holds_all(user, home))
        for user in users
    )


def _method(kept: Kept | None, row: int) -> Kept | None:
    """The method of a class in which a line stands."""
    body = kept.body if isinstance(kept, ast.ClassDef) else []
    for statement in body:
        last = getattr(statement, "end_lineno", None) or row
        if isinstance(statement, ast.FunctionDef) and statement.lineno <= row <= last:
            return statement
    return None


def is_never_called(script: Script, method: Kept) -> bool:
    """Whether nothing names a method of a class that is used and no framework calls.

    Its bases are classes of the project, whose callers are seen, or `nn.Module`, which
    calls what its documentation says.
    """
    owner = script.index.parent(method)
    project = script.index.project
    name = method.name
    if project is None or not isinstance(owner, ast.ClassDef):
        return False
    if is_offered(script, name):
        return False
    if name.startswith("_") or name in _OF_MODULES:
        return False
    if not has_plain_decorators(script.index, method):
        return False
    bases = script.resolver.classes.bases(owner)
    outside = (
        b for c in bases for b in c.bases if script.resolver.classes.named(b) is None
    )
    if not all(script.index.qualified(base) in _PLAIN for base in outside):
        return False
    users = programs(script)
    used = len(users) > 1 or _named_in(script.index, owner)
    if not used or any(map(asks_objects, users)):
        return False
    return not any(_names(project, path, name) for path in project.saying(name))


def _names(project: Project, path: Path, name: str) -> bool:
    """Whether a file has a name, other than where something of that name is defined.

    Also as a word of a text; what docstrings and comments say counts for nothing.
    """
    index = project.index(path)
    if index is None:
        named = re.compile(rf"(?<!\bdef )\b{name}\b")
        return named.search(project.text(path) or "") is not None
    return any(
        _name(node) == name
        or (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and has_word(node.value, name)
            and not isinstance(index.parent(node), ast.Expr)
        )
        for node in walk(index.tree)
    )


def asks_objects(index: FileIndex) -> bool:
    """Whether a file chooses among the attributes of an object, no imported module.

    What `__getattr__` hands on to another object is no choice.
    """
    modules = {*index.imports, "torch"}
    text = index.source.text
    asked = [
        its.start()
        for its in _OF_OBJECT.finditer(text)
        if its[1].partition(".")[0] not in modules
    ]
    asked += [its.start() for its in _CHOOSES.finditer(text)]
    handing = [f for f in index.functions if f.name == "__getattr__"] if asked else []
    rows = {row for f in handing for row in range(f.lineno, (f.end_lineno or 0) + 1)}
    return any(text.count("\n", 0, start) + 1 not in rows for start in asked)


def _around(index: FileIndex, row: int) -> Kept | None:
    for statement in index.tree.body:
        last = getattr(statement, "end_lineno", None) or row
        if isinstance(statement, Kept) and statement.lineno <= row <= last:
            return statement
    return None


def _named_in(index: FileIndex, kept: Kept) -> bool:
    """Whether its own file names it outside of it."""
    return index.source.text.count(kept.name) > 1 and any(
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
    """Whether a file may take a name from what it imports, or passes all of it on.

    Not a package that imports it by its name: who imports the package is asked, too.
    """
    package = user.source.path.name == "__init__.py"
    if package and user.stars:
        return True
    if name not in user.source.text:
        return False
    for node in walk(user.tree):
        if isinstance(node, (ast.alias, ast.Attribute)):
            passed_on = package and isinstance(node, ast.alias) and not node.asname
            if _name(node) == name and not passed_on:
                return True
        elif isinstance(node, ast.Name) and node.id == name and user.stars:
            return True
    return False
