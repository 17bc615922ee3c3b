"""Classes of a registry that nobody names, where others of it are named."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index import FileIndex, Function
from gpulint.index.chosen import registry_of
from gpulint.index.words import has_word
from gpulint.torch_prose import prose, text_of

if TYPE_CHECKING:
    from gpulint.index import Project
    from gpulint.script.model import Script

MAX_FILES = 60  # with classes of one registry
MAX_FAMILY = 40  # heirs of one class
# Where a class is written by its name, and not chosen.
_OFFERS = re.compile(
    r"^__all__\s*\+?=\s*[\[(][^\])]*|@[\w.]+\.register\w*\([^)]*\)", re.MULTILINE
)


def is_unchosen(script: Script, function: Function) -> bool:
    """Whether a method runs for objects of classes alone that nobody asks for.

    They are registered: `@MODELS.register()`, to be made by the name that settings or
    a program give, as others of the same registry are. A copied library brings many.
    """
    index, owner = script.index, script.index.parent(function)
    project = index.project
    if not isinstance(owner, ast.ClassDef) or project is None:
        return False
    if index.parent(owner) is not index.tree:
        return False
    family = [owner]
    methods = script.resolver.classes.methods
    for heir in script.resolver.outside.descendants(owner):
        if methods(heir).get(function.name) is function:
            family.append(heir)
        if len(family) > MAX_FAMILY:
            return False
    registries = {registry_of(its) for its in family} - {""}
    if len(registries) != 1 or any(_is_asked_for(project, its) for its in family):
        return False
    (registry,) = registries
    return any(
        other not in family and _is_named(project, name)
        for other in _registered(project, registry)
        for name in _names(other)
    )


def _registered(project: Project, registry: str) -> Iterator[ast.ClassDef]:
    paths = project.mentioning(f"@{registry}.register")
    for path in paths if len(paths) <= MAX_FILES else ():
        index = project.index(path)
        for owner in index.all(ast.ClassDef) if index is not None else ():
            if registry_of(owner) == registry:
                yield owner


def _is_asked_for(project: Project, owner: ast.ClassDef) -> bool:
    """Whether a class is named, or made or held anywhere but as the base of others."""
    names = _names(owner)
    if not names or any(_is_named(project, name) for name in names):
        return True
    return any(
        _is_used(index, owner.name)
        for path in project.saying(owner.name)
        if (index := project.index(path)) is not None
    )


def _names(owner: ast.ClassDef) -> list[str]:
    """The names under which a class is registered; none where they are not known."""
    names = [owner.name]
    for mark in owner.decorator_list:
        given = (
            [*mark.args, *(k.value for k in mark.keywords)]
            if (isinstance(mark, ast.Call))
            else []
        )
        for value in given:
            if not isinstance(value, ast.Constant):
                return []
            if isinstance(value.value, str):
                names.append(value.value)
    return names


def _is_named(project: Project, name: str) -> bool:
    """Whether settings, prose or a text in a Python file has a name of a class."""
    if project.settings_name(name):
        return True
    for quoted in (f"{quote}{name}{quote}" for quote in "'\""):
        texts = (project.text(path) or "" for path in project.mentioning(quoted))
        if any(quoted in _OFFERS.sub("", text) for text in texts):
            return True
    told = list(prose(project.root))
    project.noted.files.update(told)
    return any(has_word(text_of(path), name) for path in told)


def _is_used(index: FileIndex, name: str) -> bool:
    """Whether a file does more with a class than import it or derive from it."""
    return any(
        not (isinstance(above, ast.ClassDef) and read in above.bases)
        and not _is_super(above)
        for read in index.reads.get(name, ())
        for above in [index.parent(read)]
    )


def _is_super(above: ast.AST | None) -> bool:
    """`super(Model, self)`."""
    return isinstance(above, ast.Call) and getattr(above.func, "id", "") == "super"
