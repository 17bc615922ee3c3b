"""Files that cannot start: their own project lacks what they import."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from gpulint.index import FileIndex
from gpulint.script.neighbours import MAX_FILES
from gpulint.script.reaching.missing_imports import imports_nothing, module_of
from gpulint.source import Source, SourceError, check_syntax

_OF_PYTHON_2 = re.compile(
    r"inconsistent use of tabs|^Missing parentheses in call|exception types must be|"
    r"^leading zeros in decimal|cannot be parenthesized"
)
# A line of Python 2 that is invalid syntax since.
_OLD_LINE = re.compile(r"^\s*raise [\w.]+\s*,|<>|`|\bur['\"]|\b\d+L\b")
_FOR_A_DEVICE = ("torch.amp.custom_fwd", "torch.amp.custom_bwd")
# Of Google's own repository; what is published from it imports others instead.
_UNPUBLISHED = frozenset(["google3", "pyglib"])
MAX_IMPORTS = 3  # from a file to one that it imports, and so on


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
        if _imports_what_fails(its, any(map(_is_of_python_3, (index, its)))):
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
        if isinstance(statement, ast.ImportFrom):
            yield from _submodules(index, statement)


def _submodules(index: FileIndex, statement: ast.ImportFrom) -> Iterator[FileIndex]:
    """The modules of a package that an import takes, if the package has no such name.

    What its `__init__.py` binds or takes from others comes first.
    """
    module = module_of(statement)
    package = index.member(module)
    if package is None or package[1] or package[0].stars:
        return
    home = package[0]
    bound = home.bound_names | (home.imports.keys() if home is not index else set())
    dot = "" if module.endswith(".") else "."
    for alias in statement.names:
        if alias.name in bound:
            continue
        found = index.member(f"{module}{dot}{alias.name}")
        if found is not None and not found[1]:
            yield found[0]


def _asked_for(statement: ast.stmt) -> Iterator[str]:
    """The modules that an import may run, those around first: `a`, `a.b`, `a.b.c`."""
    if isinstance(statement, ast.Import):
        for alias in statement.names:
            yield from _with_packages(alias.name)
    elif isinstance(statement, ast.ImportFrom):
        level = statement.level
        yield from ("." * points for points in range(level, 0, -1))
        if statement.module:
            yield from ("." * level + n for n in _with_packages(statement.module))


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
        needed = list(_needed(index))
        if any(_is_unpublished(index, statement) for statement in needed):
            return True
        if any(imports_nothing(index, s, guess) for s in needed):
            return True
        return any(map(_leaves_device_out, _decorators(index)))

    return project.remembered(f"cannot be imported, {guess}", index.tree, found)


def _is_unpublished(index: FileIndex, statement: ast.Import | ast.ImportFrom) -> bool:
    """Whether an import is of a package that nobody but its owner has."""
    names = [alias.name for alias in statement.names]
    if isinstance(statement, ast.ImportFrom):
        names = [statement.module or ""] if not statement.level else []
    heads = {name.partition(".")[0] for name in names} & _UNPUBLISHED
    return any(index.member(head) is None for head in heads)


def _is_of_python_3(index: FileIndex) -> bool:
    """Whether no Python 2 takes a file: for its f-strings, annotations, `super()`."""
    return any(map(index.all, (ast.JoinedStr, ast.AnnAssign, ast.Nonlocal))) or any(
        not call.args and isinstance(call.func, ast.Name)
        for call in index.calls_by_name.get("super", ())
    )


def _imports_what_fails(index: FileIndex, of_python_3: bool) -> bool:
    """Whether a file imports one beside it, or of its package, that does not parse.

    One that is indented as no Python takes it; for a program of Python 3 also one for
    Python 2 alone, by its tabs or prints.
    """
    project, above = index.project, index.source.path.parents
    for statement in _needed(index) if project is not None else ():
        if not isinstance(statement, ast.ImportFrom) or not statement.module:
            continue
        folder = above[max(min(statement.level, len(above)) - 1, 0)]
        path = folder.joinpath(*statement.module.split(".")).with_suffix(".py")
        assert project is not None
        broken = project.lists(path) and project.index(path) is None
        if broken and _is_refused(Source(path, project.text(path) or ""), of_python_3):
            return True
    return False


def _is_refused(source: Source, of_python_3: bool) -> bool:
    """Whether no Python takes a text, or Python 3 does not for what Python 2 takes.

    By its indentation; by its tabs or `print x`.
    """
    try:
        check_syntax(source)
    except SyntaxError as error:
        if isinstance(error, IndentationError) and not isinstance(error, TabError):
            return True
        if not of_python_3:
            return False
        line = source.text.splitlines()[(error.lineno or 1) - 1 :][:1]
        old = any(map(_OLD_LINE.search, line))
        return old or _OF_PYTHON_2.search(error.msg) is not None
    except (SourceError, ValueError, RecursionError, MemoryError):
        return False
    return False


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
