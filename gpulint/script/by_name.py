"""How a program chooses among what modules hold, by a name that it is given."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from gpulint.index import FileIndex

# How a program may choose among all that a module holds, by a name of its options.
_BY_NAME = re.compile(
    r"__dict__\[|\bglobals\(\)(?!\[['\"]__)|\bfire\.Fire"
    r"|\bgetattr\(\s*[\w.]+\s*,(?!\s*['\"])"
)
# The same among its own names.
_BY_OWN_NAME = re.compile(r"\bglobals\(\)|\bfire\.Fire|\bsys\.modules\b")
_OF_DICTS = re.compile(r"(?:(?<![\w.])(\w[\w.]*)\.|)__dict__\[")
_OF_OBJECTS = ("self", "cls")
_PARTS = ("__dict__[", "globals(", "fire.Fire", "getattr(", "sys.modules")  # of both
_EVALUATES = re.compile(r"(?<![.\w])(?<!def )eval\(")
MAX_HELD = 60  # modules that pass all of their names on to others
Kept = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def chooses_by_name(index: FileIndex) -> bool:
    """Whether a file takes something of another module by a name that it is given."""
    return index.source.has(_BY_NAME, _PARTS) or _evaluates(index)


def chooses_among_its_own(index: FileIndex) -> bool:
    """The same of what the file itself has at its top."""
    if index.source.has(_BY_OWN_NAME, _PARTS) or _evaluates(index):
        return True
    text = index.source.text if "__dict__[" in index.source.text else ""
    # `models.__dict__[args.arch]` is of an imported module.
    heads = (holder.partition(".")[0] for holder in _OF_DICTS.findall(text))
    return any(h not in index.imports and h not in _OF_OBJECTS for h in heads)


def _evaluates(index: FileIndex) -> bool:
    """Whether it calls `eval`, and has no function of that name itself."""
    return index.source.has(_EVALUATES, ("eval(",)) and not any(
        isinstance(statement, ast.FunctionDef) and statement.name == "eval"
        for statement in index.tree.body
    )


def holds_all(user: FileIndex, home: FileIndex) -> bool:
    """Whether a file has a module, or all of its names, to choose from by name.

    Or a package around it, or a module that has all of its names in turn, or some.
    """
    project = user.project
    assert project is not None
    held = _modules(user, (*user.imported, *user.stars))
    seen: set[FileIndex] = set()
    while held:
        its = held.pop()
        path = its.source.path
        if its is home or len(seen) > MAX_HELD:
            return True
        if path.name == "__init__.py" and path.parent in home.source.path.parents:
            return True
        if its.stars and its not in seen:
            seen.add(its)
            inner = _modules(its, its.stars)
            if len(inner) < sum(its.owns(star) for star in its.stars):
                return True  # one of them is not found
            held += inner
        elif its not in seen and home in _modules(its, its.imported, True):
            return True
    return False


def _modules(
    index: FileIndex, origins: Iterable[str], of_members: bool = False
) -> list[FileIndex]:
    """The modules of a project that a file has by these names, or members of them."""
    assert index.project is not None
    members = (index.member(origin) for origin in origins)
    return [m[0] for m in members if m is not None and (of_members or not m[1])]
