"""Imports of what lies beside a module of a package, which only Python 2 finds."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from gpulint.index import FileIndex
from gpulint.script.reaching.unused import is_program
from gpulint.torch_prose import prose, text_of

if TYPE_CHECKING:
    from gpulint.index.project import Project

MAX_IMPORTS = 2  # from a program to a module, and from there
# What lets a program import from other folders than its own.
ADDS_FOLDERS = re.compile(r"\b(sys\.(path|modules)|PYTHONPATH|site\.addsitedir)\b")


def imports_what_lies_beside(files: list[FileIndex]) -> bool:
    """A package whose modules have `from resnet import *` for its own `resnet.py`.

    Only Python 2 finds that, for which 1.4 was the last torch.
    """
    packages = [f for f in files if f.source.path.name == "__init__.py"]
    if any(_lies_beside(f, name) for f in packages for name in _absolute(f)):
        return True
    return any(
        program.project.remembered("beside", program.tree, partial(_takes, program))
        for program in files
        if program.project is not None
    )


def _takes(program: FileIndex) -> bool:
    """Whether a file is a program that needs what only Python 2 finds."""
    if not is_program(program) or program.source.has(ADDS_FOLDERS):
        return False
    if program.project is None or not _may_take(program.project):
        return False
    return any(
        is_only_beside(module, statement)
        for module in _modules_of_packages(program)
        for statement in module.tree.body
        if isinstance(statement, ast.ImportFrom) and not statement.level
    )


def _may_take(project: Project) -> bool:
    """The same of any module of a project, by texts: they need not be parsed for it."""
    if project.mentions("sys.path"):
        return False
    return any(
        user.parent == path.parent and user != path
        for path in project.files
        if path.parent != project.root and path.stem not in sys.stdlib_module_names
        for user in project.taking(path.stem)
    )


def _absolute(index: FileIndex) -> Iterator[str]:
    """The modules that a file imports by an absolute name."""
    for statement in index.tree.body:
        if isinstance(statement, ast.ImportFrom) and not statement.level:
            yield statement.module or ""
        elif isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)


def _lies_beside(index: FileIndex, module: str) -> bool:
    project, folder = index.project, index.source.path.parent
    if project is None or not module.isidentifier() or folder == project.root:
        return False
    if not project.lists(folder / f"{module}.py"):
        return False
    known = index.member(module)
    return known is None or known[0] is index


def _modules_of_packages(program: FileIndex) -> Iterator[FileIndex]:
    """The modules of packages that a program imports, `models.net`, and these in turn.

    None that lies in the program's own folder, in which Python looks as well.
    """
    folder = program.source.path.parent
    found = {program: 0}
    for its in (todo := [program]):
        for name in imports_of(its) if found[its] < MAX_IMPORTS else ():
            member = its.member(name) if "." in name.strip(".") else None
            if member is None or member[0] in found:
                continue
            if member[0].source.path.parent != folder:
                found[member[0]] = found[its] + 1
                todo.append(member[0])
                yield member[0]


def is_only_beside(module: FileIndex, statement: ast.ImportFrom) -> bool:
    """Whether what a module imports lies beside it, and not in a folder above.

    All that it takes is there, and nothing says that other folders are looked in.
    """
    project, name = module.project, statement.module or ""
    beside = module.source.path.parent / f"{name}.py"
    if project is None or not name.isidentifier() or not project.lists(beside):
        return False
    if name in sys.stdlib_module_names:
        return False
    above = [f for f in beside.parent.parents if f.is_relative_to(project.root)]
    there = {p.name.partition(".")[0] for f in above for p in project.in_folder(f, "*")}
    its = project.index(beside)
    return (
        name not in there
        and its is not None
        and all(a.name in its.bound_names for a in statement.names)
        and not any("PYTHONPATH" in text_of(p) for p in prose(project.root))
    )


def imports_of(index: FileIndex) -> Iterator[str]:
    """What the import statements name that run whenever the file is imported."""
    for statement in index.tree.body:
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            module = "." * statement.level + (statement.module or "")
            yield module
            yield from (f"{module}.{alias.name}" for alias in statement.names)
