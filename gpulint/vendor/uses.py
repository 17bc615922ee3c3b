"""Which helpers a script uses, and in which folders it looks for the vendored file."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from gpulint.index import FileIndex, Project
from gpulint.index.module_search import is_run
from gpulint.index.projects import outside_packages
from gpulint.index.walk import dotted
from gpulint.runtime_name import RUNTIME, VENDORED, canonical, is_vendored
from gpulint.vendor.modules import runtime


class Unknown(NamedTuple):
    """A name that is asked of the runtime, and that it does not have."""

    row: int
    name: str


class Uses(NamedTuple):
    """What a script imports and uses of the runtime.

    `modules`: under which names it imports it, the package's among them.
    """

    helpers: frozenset[str]
    modules: frozenset[str]
    unknown: tuple[Unknown, ...]


def read_uses(index: FileIndex) -> Uses:
    """What a file uses of the runtime.

    All helpers where that cannot be said: it hands the module on, or imports `*`.
    """
    helpers = runtime().helpers
    asked = list(_asked(index))
    found = {name for _, name in asked if name in helpers}
    unknown = (Unknown(row, n) for row, n in asked if n not in (*helpers, ALL))
    if any(name == ALL for _, name in asked):
        found = set(helpers)
    return Uses(frozenset(found), frozenset(_modules(index)), tuple(unknown))


ALL = "*"


def _asked(index: FileIndex) -> Iterator[tuple[int, str]]:
    """Rows, and the names that they ask of the runtime."""
    for statement in index.all(ast.ImportFrom):
        if canonical(_origin(statement)) == RUNTIME:
            yield from ((statement.lineno, alias.name) for alias in statement.names)
    names = {name for name, origin in index.imports.items() if origin == RUNTIME}
    for node in index.all(ast.Name):
        if node.id in names and isinstance(node.ctx, ast.Load):
            yield from _asked_at(index, node, node.id in index.bound_names)
    if index.imports.get("gpulint") == "gpulint":  # `import gpulint.runtime`
        for chain in index.all(ast.Attribute):
            if dotted(chain) == RUNTIME:
                yield from _asked_at(index, chain)


def _asked_at(
    index: FileIndex, node: ast.expr, hidden: bool = False
) -> Iterator[tuple[int, str]]:
    """What is asked where the module is read; `hidden`: it may be another thing."""
    above = index.parent(node)
    if not isinstance(above, ast.Attribute):
        yield node.lineno, ALL
    elif above.attr in runtime().helpers or not (hidden or above.attr[:2] == "__"):
        yield node.lineno, above.attr


def _modules(index: FileIndex) -> Iterator[str]:
    for statement in index.all(ast.Import):
        yield from (a.name for a in statement.names if canonical(a.name) == RUNTIME)
    for origin in index.all(ast.ImportFrom):
        module = _origin(origin)
        dot = "" if module.endswith(".") else "."
        inside = (f"{module}{dot}{alias.name}" for alias in origin.names)
        yield from (n for n in (module, *inside) if canonical(n) == RUNTIME)


def _origin(statement: ast.ImportFrom) -> str:
    return "." * statement.level + (statement.module or "")


def homes(
    index: FileIndex, project: Project, modules: frozenset[str]
) -> frozenset[Path]:
    """Folders in which a file looks for the vendored one, under the names it uses.

    `_gpulint_runtime` stands beside scripts, `._gpulint_runtime` in the file's own
    folder. What imports the package so far will look beside scripts.
    """
    found = set()
    for module in modules:
        name = module if is_vendored(module) else VENDORED
        *above, _ = name.lstrip(".").split(".")
        level = len(name) - len(name.lstrip("."))
        if level:
            starts = {index.source.path.parents[level - 1]}
        else:
            starts = _starts(index, project)
        found |= {start.joinpath(*above) for start in starts}
    return frozenset(found)


def _starts(index: FileIndex, project: Project) -> set[Path]:
    """Folders in which an `import` of a file looks for modules beside scripts.

    Python looks where the script lies that it was started with, so for a module these
    are the folders from which the files that import it name it.
    """
    path = index.source.path
    found = {folder for user in project.users(index) for folder in _roots(user, index)}
    if not found or is_run(index):
        found |= {path.parent, outside_packages(path.parent)}
    return found


def _roots(user: FileIndex, index: FileIndex) -> Iterator[Path]:
    """Folders from which another file names this one: `models.vision`, two above."""
    path = index.source.path
    module = path.parent if path.stem == "__init__" else path.with_suffix("")
    for origin in {*user.imported, *user.stars}:
        parts = origin.split(".")
        for length in range(len(parts), 0, -1):
            if module.parts[-length:] == tuple(parts[:length]):
                member = user.member(origin)
                if member is not None and member[0].source.path == path:
                    yield module.parents[length - 1]
                break
