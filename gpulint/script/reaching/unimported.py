"""Files of definitions that no other file of a project imports or asks for."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

from gpulint.index import FileIndex, Project
from gpulint.index.module_search import is_main_guard, is_run, only_says
from gpulint.index.targets import qualified_name
from gpulint.index.walk import dotted
from gpulint.index.words import has_word
from gpulint.script.by_name import Kept
from gpulint.script.neighbours import MAX_FILES, does_import, programs
from gpulint.script.reaching.looked_up import (
    looks_for_modules,
    own_part,
    part_of,
)
from gpulint.script.reaching.offered import is_a_command, is_offered
from gpulint.script.reaching.startable import cannot_start
from gpulint.script.reaching.test_code import is_test_code
from gpulint.script.reaching.unused import MAX_USES, is_program
from gpulint.source import FRAMEWORKS
from gpulint.torch_prose import prose, text_of

if TYPE_CHECKING:
    from gpulint.script.model import Script

_SETS_UP = ("logger.", "logging.", "warnings.", "sys.path.")


def is_imported_by_none(script: Script, node: ast.AST, depth: int = MAX_USES) -> bool:
    """Whether a place is in a file of definitions that no file of a project names.

    Or only others of which that is true, or that lack what they import themselves. And
    nothing looks for modules by their names.
    """
    index, project = script.index, script.index.project
    kept = next((a for a in index.ancestors(node) if a in index.tree.body), None)
    if project is None or not isinstance(kept, Kept) or is_offered(script):
        return False
    if is_a_command(script):
        return False
    if not all(map(_defines, index.tree.body)) or is_run(index):
        return False
    path = index.source.path
    if _is_in_copy(project, path):
        return True
    if any(_is_registered(s) for s in index.tree.body if isinstance(s, Kept)):
        return False  # a framework may look for files of a folder
    if looks_for_modules(script):
        return False
    if project.targeting(qualified_name(index, kept)):
        return False
    if project.mentioning("__main__") in ([], [path]) and not _runs_beside(index):
        return False  # no program beside it
    if _is_described(project, path):
        return False
    naming = _naming(project, index)
    if naming is None:
        return False
    direct = (u for u in programs(script)[1:] if does_import(script, u, index))
    users = [*direct, *naming]
    return all(
        cannot_start(user)
        or (depth > 0 and _is_imported_by_none(script, user, depth - 1))
        for user in dict.fromkeys(users)
    )


def no_program_starts(script: Script) -> bool:
    """Whether all that runs and is seen to import a file lacks what it imports.

    Or is a test, in a project that trains elsewhere. And no text or command names the
    file, nor does anything choose modules by names.
    """
    project, tree = script.index.project, script.index.tree
    if project is None or is_program(script.index):
        return False

    def found() -> bool:
        users = programs(script)[1:]
        running = [u for u in users if not all(map(_defines, u.tree.body)) or is_run(u)]
        return (
            0 < len(users) < MAX_FILES
            and bool(running)
            and (all(map(cannot_start, running)) or _is_for_tests(script, running))
            and not is_offered(script)
            and not is_a_command(script)
            and not looks_for_modules(script)
            and not _is_described(project, script.source.path, imported=True)
        )

    return project.remembered("no program starts", tree, found)


def _is_for_tests(script: Script, running: list[FileIndex]) -> bool:
    """Whether tests alone run a file or may name it, where other programs train."""
    project, index = script.index.project, script.index
    if project is None or not all(cannot_start(u) or is_test_code(u) for u in running):
        return False
    naming = _naming(project, index)
    if naming is None or not all(map(is_test_code, naming)):
        return False
    others = [p for p in project.mentioning("backward(") if p != index.source.path]
    trains = (u for u in map(project.index, others[:MAX_FILES]) if u is not None)
    return any(is_program(user) and not is_test_code(user) for user in trains)


def _naming(project: Project, index: FileIndex) -> list[FileIndex] | None:
    """Other files that may import a file or have its name in a text; None: too many."""
    path = index.source.path
    others = [p for p in project.mentioning(path.stem) if p != path]
    if len(others) > MAX_FILES:  # of a repository of many projects
        part = own_part(project, path)
        others = [p for p in others if p.is_relative_to(part)]
    if len(others) > MAX_FILES:
        return None  # not to read them all
    known = (user for user in map(project.index, others) if user is not None)
    return [user for user in known if _may_name(user, index)]


def _is_imported_by_none(script: Script, index: FileIndex, depth: int) -> bool:
    """The same of a file, by its first function or class."""
    first = next((s for s in index.tree.body if isinstance(s, Kept)), None)
    return first is not None and is_imported_by_none(
        script.of(first), first.body[0], depth
    )


def _is_in_copy(project: Project, path: Path) -> bool:
    """Whether a folder cannot be imported by its name, `model copy`, and is not named.

    Nor does it hold a program that might import from it.
    """
    for folder in path.parents:
        if folder == project.root or project.root not in folder.parents:
            return False
        if " " in folder.name:
            files = project.below(folder)
            known = [project.index(file) for file in files[: MAX_FILES + 1]]
            return len(known) <= MAX_FILES and not (
                any(index is not None and is_program(index) for index in known)
                or project.mentions(folder.name)
            )
    return False


def _is_registered(kept: Kept) -> bool:
    """`@register_model("small")`, `@MODELS.register_module()`."""
    return any("regist" in ast.unparse(d).lower() for d in kept.decorator_list)


def _is_described(project: Project, path: Path, *, imported: bool = False) -> bool:
    """Whether a text or shell script beside a file, or above, imports or names it.

    `imported`: imports alone, for lists of files name each.
    """
    stem = re.escape(path.stem)
    imports = rf"\b(?:from|import)[ \t]+(?:[\w.]+\.)?{stem}\b"
    named = re.compile(imports if imported else rf"{imports}|\b{stem}\.py\b")
    folders = [
        f for f in path.parents if f == project.root or project.root in f.parents
    ]
    texts = (
        text
        for folder in folders
        for text in (*prose(folder), *project.in_folder(folder, "*.sh"))
    )
    for text in texts:
        project.noted.files.add(text)
        if named.search(text_of(text)):
            return True
    return False


def _runs_beside(index: FileIndex) -> bool:
    """Whether a program without a main guard trains beside a file or names its folder.

    Not each file beside it is read: an answer would rest on all of them.
    """
    project, path = index.project, index.source.path
    if project is None:
        return False
    beside = [p for p in project.mentioning("backward(") if p.parent == path.parent]
    named = project.mentioning(path.parent.name)
    others = [p for p in dict.fromkeys((*beside, *named)) if p != path]
    users = map(project.index, others[:MAX_FILES])
    return any(user is not None and is_program(user) for user in users)


def _may_name(user: FileIndex, home: FileIndex) -> bool:
    """Whether a file imports another one, as far as is seen, or has its name in a text.

    `visualization` of `from lib.visualization import draw` may be another file's.
    """
    project, path = user.project, home.source.path
    assert project is not None
    if has_word(user.source.text, f"{path.stem}.py"):
        return True
    parts = {part_of(project, path), part_of(project, user.source.path), None}
    quoted = re.search(rf"['\"/]{re.escape(path.stem)}['\"]", user.source.text)
    if quoted and len(parts) < 3:  # else of another part of the repository
        return True
    for origin in (*user.imported, *user.stars):
        names = origin.split(".")
        if path.stem in names and _may_lead_to(user, names[0], path):
            member = user.member(origin)
            if member is None or member[0] is home:
                return True
    return False


def _may_lead_to(user: FileIndex, head: str, path: Path) -> bool:
    """Whether what starts with a name may be a file: no module of a known package."""
    project = user.project
    assert project is not None
    known = head.removeprefix("pytorch_").partition("_")[0] in FRAMEWORKS
    return not known or user.owns(head) or head in path.parts


def _defines(statement: ast.stmt) -> bool:
    """Whether a statement of a module does nothing that anybody would start it for."""
    if isinstance(statement, ast.If):
        if is_main_guard(statement):
            return all(map(only_says, statement.body))
        return all(map(_defines, (*statement.body, *statement.orelse)))
    if isinstance(statement, ast.Expr):
        said = statement.value
        called = dotted(said.func) or "" if isinstance(said, ast.Call) else ""
        return isinstance(said, ast.Constant) or called.startswith(_SETS_UP)
    return isinstance(
        statement,
        (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.Try, Kept),
    )
