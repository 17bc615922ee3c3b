"""Modules that a program looks for by names that it makes or is given."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

from gpulint.index import Project
from gpulint.index.build import last_name
from gpulint.index.outside import IMPORTS
from gpulint.script.neighbours import beginning
from gpulint.torch_prose import prose

if TYPE_CHECKING:
    from gpulint.script.model import Script

_SPLITS = ("rsplit", "rpartition")
_LISTS = re.compile(r"\b(listdir|glob|iterdir|scandir|walk|iter_modules)\b")


def looks_for_modules(script: Script) -> bool:
    """Whether a file takes modules by their names, of the same part of a repository.

    A part is a folder with all that it holds; what lies above it is for it as well.
    """
    project = script.index.project
    assert project is not None
    part = own_part(project, script.source.path)
    return any(
        (path.is_relative_to(part) or part.is_relative_to(path.parent))
        and _may_ask(script, path, word)
        for word in (*IMPORTS, "pkgutil")
        for path in project.mentioning(word)
    )


def own_part(project: Project, path: Path) -> Path:
    """The nearest folder around a file that has a text of its own: a README.

    Of a repository of many projects; else the folder at its top, or all of it. No
    package inside of another.
    """
    root = project.root
    above = [f for f in path.parents if root in f.parents]
    for folder in above:
        if project.lists(folder / "__init__.py"):
            continue
        texts = prose(folder)
        project.noted.files.update(texts)
        if texts:
            return folder
    return above[-1] if above else root


def may_be_looked_up(script: Script, name: str) -> bool:
    """Whether a file anywhere may take what a module holds, by a name it is given."""
    project = script.index.project
    assert project is not None
    return any(
        _may_ask(script, path, word, name)
        for word in IMPORTS
        for path in project.mentioning(word)
    )


def _may_ask(script: Script, path: Path, word: str, member: str = "") -> bool:
    """Whether a file may ask for a module; `import_module("a.models")` does for one."""
    project = script.index.project
    assert project is not None
    index = project.index(path)
    calls = index.calls_by_name.get(word, ()) if index is not None else ()
    return not calls or any(
        not call.args or _may_be(script, call.args[0], _package(call), member)
        for call in calls
    )


def _package(call: ast.Call) -> str:
    """`models` of `import_module("." + name, "models")`, which a point stands for."""
    given = [*call.args[1:2], *(k.value for k in call.keywords if k.arg == "package")]
    value = given[0].value if given and isinstance(given[0], ast.Constant) else ""
    return value if isinstance(value, str) else ""


def _may_be(script: Script, name: ast.expr, package: str, member: str) -> bool:
    """Whether a module's name may lead to a file: `"models." + name`, and `models/`.

    Also one that starts with a point, of a `package`. What is split off the name of a
    class, `module, _ = name.rsplit(".", 1)`, is one that a text has before a point.
    """
    home = script.source.path
    if isinstance(name, ast.Constant):
        text = name.value if isinstance(name.value, str) else home.stem
        return home.stem in text.split(".")
    definitions = script.definitions(name) if isinstance(name, ast.Name) else ()
    values = [d.value for d in definitions if d.kind == "assign" and d.value]
    if not values or len(values) != len(definitions):
        values = [name]
    index = script.index.home(name)
    if all(map(_is_split_off, values)) and not index.source.has(_LISTS):
        return _is_in_text(script, f"{home.stem}.{member}")
    starts = [beginning(script, value) for value in values]
    return any(
        _is_below(f"{package}{start}" if start[:1] == "." else start, home)
        for start in starts
    )


def _is_split_off(value: ast.expr) -> bool:
    """`name.rsplit(".", 1)`, or another way to take the last part of a name away."""
    return isinstance(value, ast.Call) and last_name(value) in _SPLITS


def _is_in_text(script: Script, name: str) -> bool:
    """Whether a text or settings have a name of what is in a module: `losses.Dice`."""
    project = script.index.project
    assert project is not None
    quoted = re.compile(rf"['\"](?:\w+\.)*{re.escape(name)}")
    texts = project.texts(name)
    return project.settings_have(name) or any(map(quoted.search, texts))


def _is_below(start: str, home: Path) -> bool:
    """Whether names that start in a way, as `lib.models.`, may be of a file."""
    package = start.rpartition(".")[0].strip(".")
    folders = f".{'.'.join(home.parent.parts)}."
    return not package or f".{package}." in folders


def part_of(project: Project, path: Path) -> str | None:
    """The folder at the top of a repository in which a file lies; None: in none."""
    if not path.is_relative_to(project.root):
        return None
    folder, *names = path.relative_to(project.root).parts
    return folder if names else None
