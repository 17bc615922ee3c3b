"""Files that cannot start: their own project lacks what they import."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index import FileIndex
from gpulint.index.module_search import is_run
from gpulint.script.neighbours import MAX_FILES, programs
from gpulint.script.reaching.looked_up import looks_for_modules
from gpulint.script.reaching.missing_imports import imports_nothing, module_of
from gpulint.script.reaching.offered import is_offered
from gpulint.script.reaching.unused import is_program

if TYPE_CHECKING:
    from gpulint.script.model import Script

_FOR_A_DEVICE = ("torch.amp.custom_fwd", "torch.amp.custom_bwd")
MAX_IMPORTS = 3  # from a file to one that it imports, and so on


def no_program_starts(script: Script) -> bool:
    """Whether all programs that are seen to import a file lack what they import."""
    project, tree = script.index.project, script.index.tree
    if project is None or is_run(script.index):
        return False

    def found() -> bool:
        known = [user for user in programs(script)[1:] if is_program(user)]
        return (
            bool(known)
            and all(map(cannot_start, known))
            and not is_program(script.index)
            and not is_offered(script)
            and not looks_for_modules(script)
        )

    return project.remembered("no program starts", tree, found)


def cannot_start(index: FileIndex) -> bool:
    """Whether a file, or one of the project that it imports, lacks what it imports."""
    project = index.project
    if project is None:
        return False
    return project.remembered("cannot start", index.tree, lambda: _lacks_any(index))


def _lacks_any(index: FileIndex) -> bool:
    folder = index.source.path.parent
    depths = {index: 0}
    for its in (found := [index]):
        beside = depths[its] < 2 and its.source.path.parent == folder
        if _cannot_be_imported(its, guess=beside):
            return True
        more = depths[its] < MAX_IMPORTS and len(depths) < MAX_FILES
        for imported in _imported_by(its) if more else ():
            if len(depths) >= MAX_FILES:
                break  # each that is asked for is read
            if imported not in depths:
                depths[imported] = depths[its] + 1
                found.append(imported)
    return False


def _imported_by(index: FileIndex) -> Iterator[FileIndex]:
    """The files of the project that run whenever a file starts: modules, packages."""
    for statement in index.tree.body:
        for name in _asked_for(statement):
            found = index.member(name)
            if found is not None and not found[1]:
                yield found[0]


def _asked_for(statement: ast.stmt) -> Iterator[str]:
    """The modules that an import may run, those around first: `a`, `a.b`, `a.b.c`."""
    if isinstance(statement, ast.Import):
        for alias in statement.names:
            yield from _with_packages(alias.name)
    elif isinstance(statement, ast.ImportFrom):
        module, level = module_of(statement), statement.level
        yield from ("." * points for points in range(level, 0, -1))
        if statement.module:
            yield from ("." * level + n for n in _with_packages(statement.module))
        dot = "." if statement.module else ""
        yield from (f"{module}{dot}{alias.name}" for alias in statement.names)


def _with_packages(module: str) -> Iterator[str]:
    parts = module.split(".")
    yield from (".".join(parts[:number]) for number in range(1, len(parts) + 1))


def _cannot_be_imported(index: FileIndex, guess: bool) -> bool:
    """Whether a file imports what its project's own package or module does not have.

    Or decorates what it defines so that torch raises. `guess`: also what only looks as
    if it had been the project's.
    """
    project = index.project
    if project is None:
        return False

    def found() -> bool:
        if any(imports_nothing(index, s, guess) for s in _needed(index)):
            return True
        return any(map(_leaves_device_out, _decorators(index)))

    return project.remembered(f"cannot be imported, {guess}", index.tree, found)


def _needed(index: FileIndex) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports without which a file stops, also by an error of its own."""
    both = (ast.Import, ast.ImportFrom)
    for statement in index.tree.body:
        if isinstance(statement, both):
            yield statement
        elif isinstance(statement, ast.Try) and all(
            isinstance(handler.body[-1], ast.Raise) for handler in statement.handlers
        ):
            yield from (s for s in statement.body if isinstance(s, both))


def _decorators(index: FileIndex) -> Iterator[tuple[FileIndex, ast.expr]]:
    """Those of the functions and methods that a file defines when it starts."""
    for function in index.functions if "custom_" in index.source.text else ():
        owner = index.parent(function)
        holder = index.parent(owner) if isinstance(owner, ast.ClassDef) else owner
        if isinstance(holder, ast.Module):
            yield from ((index, decorator) for decorator in function.decorator_list)


def _leaves_device_out(decorated: tuple[FileIndex, ast.expr]) -> bool:
    """`@torch.amp.custom_fwd`: unlike `torch.cuda`'s it asks for a `device_type`."""
    index, decorator = decorated
    given = decorator.keywords if isinstance(decorator, ast.Call) else []
    named = decorator.func if isinstance(decorator, ast.Call) else decorator
    if index.qualified(named) not in _FOR_A_DEVICE:
        return False
    return not any(keyword.arg in ("device_type", None) for keyword in given)
