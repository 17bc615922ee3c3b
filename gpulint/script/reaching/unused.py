"""Functions, classes and modules that no program uses, or only unused code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from gpulint.index import FileIndex, Project
from gpulint.index.build import last_name
from gpulint.index.command_line import PARSES
from gpulint.index.module_search import is_run
from gpulint.index.targets import qualified_name
from gpulint.index.walk import dotted, walk_scope
from gpulint.index.words import has_word
from gpulint.script.by_name import (
    Kept,
    chooses_among_its_own,
    chooses_by_name,
    holds_all,
)
from gpulint.script.decorators import tells_nobody
from gpulint.script.neighbours import MAX_FILES, programs
from gpulint.script.reaching.looked_up import may_be_looked_up
from gpulint.script.reaching.offered import is_a_command, is_offered, notebooks_in
from gpulint.script.reaching.shown import is_shown
from gpulint.torch_prose import prose, text_of

if TYPE_CHECKING:
    from gpulint.script.model import Script

MAX_NOTEBOOKS = 16_000_000  # bytes of the notebooks beside a file, with their pictures
MAX_USES = 3  # from what is used, to what uses it, and so on
_MAKES_BY_ANNOTATION = frozenset(
    "draccus jsonargparse lightning pydantic pytorch_lightning simple_parsing "
    "tyro".split()
)
_LISTED = re.compile(r"^__all__\s*\+?=\s*[\[(][^\])]*[\])]", re.MULTILINE)


def is_only_imported(script: Script, node: ast.AST, depth: int = MAX_USES) -> bool:
    """Whether nothing but imports names the function or class around a place.

    Or only others of which that is true. Of a project that is no library; what a
    program chooses by name may be any. Of a file that nothing imports where it is a
    program itself. A main guard that only shows what the class gives is none.
    """
    kept = next(
        (a for a in script.index.ancestors(node) if a in script.index.tree.body), None
    )
    project = script.index.project
    if project is None or not isinstance(kept, Kept):
        return False
    if not tells_nobody(script, kept) or _is_test(script.index, kept):
        return False
    if is_a_command(script, kept.name):
        return False
    private = kept.name.startswith("_")
    if is_offered(script, kept.name) and not private:
        return not _is_in_use(script, kept, depth)
    if project.targeting(qualified_name(script.index, kept)):
        return False
    users = programs(script)
    home = script.index
    if len(users) >= MAX_FILES or chooses_among_its_own(home):
        return False
    if len(users) == 1 and not is_program(home):
        # it may be for programs elsewhere, unless notebooks beside it use the file
        return _notebooks_leave_out(project, home, kept)
    if any(chooses_by_name(u) and holds_all(u, home) for u in users):
        return False
    asked = "" if isinstance(kept, ast.ClassDef) else r"getattr\([^)]*"
    asks = re.compile(rf"{asked}['\"]{kept.name}['\"]")
    asking = [user for user in users if user.source.has(asks)]
    if any(asks.search(_LISTED.sub("", user.source.text)) for user in asking):
        return False
    if asking and _is_read_anywhere(project, kept):
        return False  # who imports a package is not always seen
    reads = [
        read
        for read in _reads_in(users, home, kept)
        if not is_shown(script.of(read), read)
    ]
    return not reads or (
        depth > 0 and all(is_only_imported(script.of(n), n, depth - 1) for n in reads)
    )


def _is_read_anywhere(project: Project, kept: Kept) -> bool:
    """Whether a file of the project reads anything of a name, but for its own lines."""
    files = map(project.index, project.saying(kept.name))
    return any(
        not file.inside(node, kept)
        for file in files
        if file is not None
        for node in file.reads.get(kept.name, ())
    )


def _is_test(index: FileIndex, kept: Kept) -> bool:
    """Whether pytest or unittest finds a function or class by its name."""
    stem = index.source.path.stem
    named = stem.startswith("test") or stem.endswith("_test")
    return named and kept.name.startswith(("test", "Test"))


def reads_of(script: Script, kept: Kept) -> Iterator[ast.AST]:
    """Where the programs of a file read a function or class at its top."""
    yield from _reads_in(programs(script)[:MAX_FILES], script.index, kept)


def _reads_in(users: list[FileIndex], home: FileIndex, kept: Kept) -> Iterator[ast.AST]:
    names = _names_of(users, kept)
    for user in users:
        yield from _reads(user, home, kept, names)


def _is_in_use(script: Script, kept: Kept, depth: int) -> bool:
    """Whether a package exports a function or class, or anything reads or describes it.

    Any file of the project, its tests among them, and the texts and notebooks around.
    What its own file reads it for may be used by nobody in turn.
    """
    project, home, name = script.index.project, script.index, kept.name
    if project is None or not project.files or not project.is_read:
        return True
    alone = len(programs(script)) == 1  # nothing of the file is used elsewhere
    if alone and not (is_run(home) and any(map(home.calls_by_name.get, PARSES))):
        return True  # others may import it
    if chooses_among_its_own(home):
        return True
    if project.targeting(qualified_name(home, kept)):
        return True
    if not alone and any(project.mentions(f"{q}{name}{q}") for q in "'\""):
        return True
    if isinstance(kept, ast.ClassDef) and may_be_looked_up(script, name):
        return True
    root = project.root
    texts = [*prose(root), *notebooks_in(project, {root, home.source.path.parent})]
    for folder in (root / "docs", root / "docs" / "source"):
        texts += [
            *project.in_folder(folder, "*.md"),
            *project.in_folder(folder, "*.rst"),
        ]
    # Of a program nobody imports, prose has the name with the program's.
    of_program = rf"\b{re.escape(home.source.path.stem)}\b.*" if alone else ""
    named = re.compile(rf"{of_program}\b{name}\b")
    if any(named.search(text_of(path)) for path in texts):
        return True
    above = [
        f / "__init__.py" for f in home.source.path.parents if root in (f, *f.parents)
    ]
    packages = [project.index(path) for path in above if project.lists(path)]
    if any(package is not None and package.stars for package in packages):
        return True  # which may pass on all names
    if not alone and any(
        _takes(file, home, kept)
        for file in map(project.index, project.saying(name))
        if file is not None and file is not home
    ):
        return True
    reads = [n for n in home.reads.get(name, ()) if not home.inside(n, kept)]
    return not all(
        depth > 0 and is_only_imported(script, read, depth - 1) for read in reads
    )


def _takes(file: FileIndex, home: FileIndex, kept: Kept) -> bool:
    """Whether a file reads a name, or is a package that passes it on.

    Not where the name is that of its own class or function, or of another file's.
    """
    names = {kept.name} | file.local_names.get(kept.name, set())
    imported = names.intersection(file.imports)
    if any(not _is_of_another(file, file.imports[n], home) for n in imported):
        package = file.source.path.name == "__init__.py"
        return package or any(map(file.reads.get, names))
    other = bool(imported) or _defined_in(file, kept.name)
    reads = file.reads.get(kept.name, ())
    return any(not other or isinstance(node, ast.Attribute) for node in reads)


def _is_of_another(file: FileIndex, origin: str, home: FileIndex) -> bool:
    """Whether a name that a file imports is defined in a file that is not `home`."""
    member = file.member(origin)
    if member is None or member[0] is home or len(member[1]) != 1:
        return False
    return _defined_in(member[0], member[1][0])


def _defined_in(index: FileIndex, name: str) -> bool:
    """Whether a function or class of a name stands at the top of a file."""
    return any(isinstance(s, Kept) and s.name == name for s in index.tree.body)


def is_program(index: FileIndex) -> bool:
    """Whether a file does something when it is started, with a main guard or not."""
    return is_run(index) or any(
        isinstance(statement, (ast.For, ast.While))
        or any(
            isinstance(node, ast.Call) and last_name(node) == "parse_args"
            for node in walk_scope(statement)
        )
        for statement in index.tree.body
        if not isinstance(statement, Kept)
    )


def _names_of(users: list[FileIndex], kept: Kept) -> set[str]:
    """The names of a function or class, also by which files import and pass it on."""
    names = {kept.name}
    while True:
        found = {
            local
            for user in users
            for local, origins in user.origins.items()
            if any(origin.rpartition(".")[2] in names for origin in origins)
        }
        if found <= names:
            return names
        names |= found


def _reads(
    user: FileIndex, home: FileIndex, kept: Kept, all_names: set[str]
) -> Iterator[ast.AST]:
    """Where a file reads what a module has, by its name or as a part of that.

    Another object's method of a function's name, as `model.train()`, is none.
    """
    project = user.project
    names = {
        name
        for name, origins in user.origins.items()
        for origin in origins
        if origin.rpartition(".")[2] in all_names
        and (project is None or user.owns(origin))
    }
    if user is home or (user.stars and kept.name not in user.bound_names):
        names.add(kept.name)
    for name in names:
        for node in user.reads.get(name, ()):
            if isinstance(node, ast.Name) and not (
                user.inside(node, kept) or _is_annotation(user, node)
            ):
                yield node
    for name in all_names:
        for node in user.reads.get(name, ()):
            if isinstance(node, ast.Attribute) and (
                isinstance(kept, ast.ClassDef)
                or (
                    (dotted(node.value) or "").partition(".")[0] in user.imports
                    and _leads_to(user, node, home)
                )
            ):
                yield node


def _is_annotation(user: FileIndex, name: ast.Name) -> bool:
    """`agent: Base = …` only says what something is, or is like.

    Where no package makes objects by what parameters are said to be.
    """
    if not _MAKES_BY_ANNOTATION.isdisjoint(user.packages):
        return False
    child: ast.AST = name
    for above in user.ancestors(name):
        if isinstance(above, (ast.AnnAssign, ast.arg)):
            return child is above.annotation
        if isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef):
            return child is above.returns
        if isinstance(above, ast.stmt):
            return False
        child = above
    return False


def _leads_to(user: FileIndex, node: ast.Attribute, home: FileIndex) -> bool:
    """Whether `utils.train` may be a module's, or what a package has of it."""
    name = user.qualified(node.value) or ""
    if not user.owns(name):
        return False
    member = user.member(name)
    if member is None or member[0] is home:
        return True
    passes_on = node.attr in member[0].imports or bool(member[0].stars)
    return passes_on and not member[1]


def _notebooks_leave_out(project: Project, home: FileIndex, kept: Kept) -> bool:
    """Whether notebooks beside a file import it, and none names what is defined there.

    Nor the file itself, in another place. Each notebook is read to its end, or nothing
    is said.
    """
    path = home.source.path
    imports = re.compile(rf"\b(from|import)\s+{re.escape(path.stem)}\b")
    beside = notebooks_in(project, {path.parent})
    notebooks = [its for its in beside if project.is_file(its)]  # notes them, too
    if not notebooks or sum(map(_size, notebooks)) > MAX_NOTEBOOKS:
        return False
    texts = (text_of(notebook, MAX_NOTEBOOKS) for notebook in notebooks)
    importing = [text for text in texts if imports.search(text)]
    lines = home.source.text.splitlines()
    del lines[kept.lineno - 1 : kept.end_lineno]
    return bool(importing) and not any(
        has_word(text, kept.name) for text in (*importing, "\n".join(lines))
    )


def _size(path: Path) -> int:
    """The bytes of a file, more than are read where that is not known."""
    try:
        return path.stat().st_size
    except OSError:
        return MAX_NOTEBOOKS + 1
