"""The files of a project that run together with a script."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gpulint.index import FileIndex
from gpulint.index.module_search import is_main_guard
from gpulint.index.outside import IMPORTS
from gpulint.index.walk import COMPREHENSIONS, LOOPS
from gpulint.script.by_name import chooses_among_its_own, chooses_by_name, holds_all
from gpulint.script.reaching.offered import is_packaged

if TYPE_CHECKING:
    from gpulint.script.model import Script

MAX_FILES = 60
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
MAX_DEPTH = 4
_INFERS = re.compile(r"\.eval\(\)|no_grad|inference_mode")
_TRAINS = re.compile(r"rainer|\.fit\(|backward\(")


def programs(script: Script) -> list[FileIndex]:
    """This file and those that import it, directly or through others."""
    project, tree = script.index.project, script.index.tree

    def found() -> list[FileIndex]:
        return list(find_programs(script))

    return project.remembered("programs", tree, found) if project else found()


def find_programs(script: Script) -> Iterator[FileIndex]:
    """The same, near ones first; files are read only as far as somebody asks."""
    depths = {script.index: 0}
    found = [script.index]
    for index in found:
        yield index
        project = index.project
        if project is None or depths[index] >= MAX_DEPTH or len(found) > MAX_FILES:
            continue
        for user in project.users(index):
            if user not in depths and does_import(script, user, index):
                depths[user] = depths[index] + 1
                found.append(user)


def run_together(script: Script) -> list[FileIndex]:
    """The programs that a file is a part of, and what they import, near ones first."""
    project, tree = script.index.project, script.index.tree

    def found() -> list[FileIndex]:
        return _with_imports(script, programs(script))

    return project.remembered("run together", tree, found) if project else found()


def run_alone(script: Script) -> list[FileIndex]:
    """What runs where a file is started itself: it, and what it imports, near first."""
    return _with_imports(script, [script.index])


def _with_imports(script: Script, started: list[FileIndex]) -> list[FileIndex]:
    found = dict.fromkeys(started)
    todo = list(found)
    for index in todo:
        for its in _imported(script, index):  # a package may name a thousand modules
            if len(found) >= MAX_FILES:
                return list(found)[:MAX_FILES]
            if its not in found:
                found[its] = None
                todo.append(its)
    return list(found)


def may_be_run(script: Script, node: ast.AST, files: Iterable[FileIndex]) -> bool:
    """Whether files that run together may come to a place in one of them.

    At its top, in what is decorated, or in a function or class that any of them names,
    chooses by name, or installs. Not under the main guard of a file that is no program
    of the script's.
    """
    home = script.index.home(node)
    around = home.ancestors(node)
    guarded = any(isinstance(a, ast.If) and is_main_guard(a) for a in around)
    if guarded and home not in programs(script):
        return False
    outer = next((a for a in reversed(around) if isinstance(a, _DEFINITIONS)), None)
    if outer is None or outer.decorator_list or is_packaged(script.of(node)):
        return True
    return chooses_among_its_own(home) or any(
        index.reads.get(outer.name)
        or any(o.rpartition(".")[2] == outer.name for o in index.imported)
        or (chooses_by_name(index) and holds_all(index, home))
        for index in files
    )


def used_by(script: Script) -> list[FileIndex]:
    """The programs that a file is a part of, and what these import themselves."""
    found = programs(script)
    direct = [i for index in found[:MAX_FILES] for i in imported(script, index)]
    return list(dict.fromkeys([*found, *direct]))


def does_import(script: Script, user: FileIndex, index: FileIndex) -> bool:
    """Whether a file imports another; many ask of the same two."""
    project = index.project
    assert project is not None
    asked = f"imports {index.source.path}"
    return project.remembered(asked, user.tree, lambda: _imports(script, user, index))


def _imports(script: Script, user: FileIndex, index: FileIndex) -> bool:
    """Whether `index` is among what a file imports; reads as few files as it can."""
    path = index.source.path
    stem = path.parent.name if path.stem == "__init__" else path.stem
    likely = [
        origin
        for origin in (*_origins(user), *user.stars)
        for parts in [origin.split(".")]
        if stem in parts or parts[-1] in index.bound_names or parts[-1] in index.imports
    ]
    return any(index is home for home in _homes(script, user, likely))


def imported(script: Script, index: FileIndex) -> list[FileIndex]:
    """The files of the project from which a file imports something, each once.

    A name that a package only passes on counts for the file that defines it.
    """
    return list(dict.fromkeys(_imported(script, index)))


def _imported(script: Script, index: FileIndex) -> Iterator[FileIndex]:
    """The same, some of them again; files are read only as far as somebody asks."""
    if index.project is None:
        return
    yield from _homes(script, index, (*_origins(index), *index.stars))
    yield from _homes(script, index, _chosen(script, index))
    for package in _chosen_from(script, index):
        yield from index.project.modules.modules_in(index, package)


def _homes(
    script: Script, index: FileIndex, origins: Iterable[str]
) -> Iterator[FileIndex]:
    """The files in which the things are defined that a file imports."""
    assert index.project is not None
    for origin in origins:
        member = index.member(origin)
        if member is None:
            continue
        home, rest = member
        yield home
        if len(rest) == 1:
            scope = script.resolver.flow(home.tree)
            for definition in scope.definitions.get(rest[0], ()):
                for final in script.resolver.final(definition):
                    yield script.index.home(final.node)


def _origins(index: FileIndex) -> Iterator[str]:
    """What the import statements of a file name, in all branches."""
    for statement in index.all(ast.Import):
        yield from (alias.name for alias in statement.names)
    for origin in index.all(ast.ImportFrom):
        module = "." * origin.level + (origin.module or "")
        dot = "" if module.endswith(".") else "."
        for alias in origin.names:
            if alias.name != "*":
                yield f"{module}{dot}{alias.name}"


def _chosen(script: Script, index: FileIndex) -> Iterator[str]:
    """The modules that `import_module(args.model)` is known to name."""
    for function in IMPORTS:
        for call in index.calls_by_name.get(function, ()):
            values = (
                script.of(call).evaluator.values(call.args[0]) if call.args else None
            )
            for value in values.known if values is not None else ():
                name = value.constant if isinstance(value.constant, str) else ""
                if all(map(str.isidentifier, name.split("."))):
                    yield name


def _chosen_from(script: Script, index: FileIndex) -> Iterator[str]:
    """The packages of which a file imports modules by names that it makes.

    `models` of `import_module("models." + name)`, or of any such name that the file
    makes where what it imports is not written in the call.
    """
    for function in IMPORTS:
        for call in index.calls_by_name.get(function, ()):
            given = call.args[:1]
            if given and isinstance(given[0], (ast.Name, ast.Attribute, ast.Subscript)):
                given = [*index.all(ast.JoinedStr), *index.all(ast.BinOp)]
            for name in given:
                text = beginning(script, name)
                if text.endswith("."):
                    yield text.rstrip(".")


def beginning(script: Script, text: ast.expr) -> str:
    """`models.` of `"models." + name`, `f"models.{name}"` and `"models.%s" % name`."""
    if isinstance(text, ast.BinOp):
        whole = beginning(script, text.left) or _constant(text.left)
        return whole.partition("%")[0]
    if isinstance(text, ast.JoinedStr) and text.values:
        first, *rest = text.values
        if isinstance(first, ast.FormattedValue):  # `f"{folder}.{name}"`
            values = script.evaluator.values(first.value)
            folders = {v.constant for v in values.known if isinstance(v.constant, str)}
            known = values.complete and len(folders) == 1 and rest
            return folders.pop() + _constant(rest[0]) if known else ""
        return _constant(first)
    func = text.func if isinstance(text, ast.Call) else None
    if isinstance(func, ast.Attribute) and func.attr == "format":
        return _constant(func.value).partition("{")[0]
    return ""


def _constant(node: ast.expr) -> str:
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, str) else ""


def serves_single_inputs(script: Script) -> bool:
    """Whether only scripts without a loop use a file: a demo that runs its model once.

    Each of them must run a model itself; who uses a library is not known.
    """
    if script.training_loops or script.eval_loops:
        return False
    used = False
    for user in find_programs(script):
        if user is not script.index and user.source.path.name != "__init__.py":
            if not _runs_a_model_once(user):
                return False
            used = True
    return used


def is_left_behind(script: Script) -> bool:
    """Whether a file lies in a package that no file outside names, where others train.

    A package copied from elsewhere, or no longer used. What has a loop of its own may
    be a program.
    """
    project, path = script.index.project, script.source.path
    if project is None or not project.lists(path):
        return False
    if script.training_loops or script.eval_loops:
        return False
    folder = path.parent
    package = project.lists(folder / "__init__.py")
    if not package or "__main__" in script.source.text:
        return False
    trained = project.names_outside(folder, "backward(")
    return trained and not project.names_outside(folder, folder.name)


def _runs_a_model_once(index: FileIndex) -> bool:
    text = index.source.text
    if not _INFERS.search(text) or _TRAINS.search(text):
        return False
    loops = (*LOOPS, *COMPREHENSIONS)
    return not any(isinstance(node, loops) for node in ast.walk(index.tree))
