"""Options that are fields of a class, and what these are by default."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index import FileIndex
from gpulint.index.walk import dotted
from gpulint.script.reaching.commands import passes_option

if TYPE_CHECKING:
    from gpulint.script.model import Script

_FACTORIES = ("default_factory", "factory")


def is_field_left_off(script: Script, test: ast.expr) -> bool:
    """`self.args.empty_cache`, of a trainer that another package gives its options.

    Each class of the project with such a field has it off, nothing makes its objects,
    and no command, settings or line of code gives it another value.
    """
    holder = dotted(test.value) if isinstance(test, ast.Attribute) else None
    project = script.index.project
    if project is None or not (holder or "").endswith("args"):
        return False
    assert isinstance(test, ast.Attribute)
    name = test.attr
    files = map(project.index, project.mentioning(f"{name}:"))
    fields = [field for file in files if file for field in _fields(file, name)]
    return (
        bool(fields)
        and all(_is_off(field) for _, field in fields)
        and not any(script.resolver.classes.constructors(its) for its, _ in fields)
        and project.writing(name) == []
        and not project.having_keys([name])
        and not project.mentions(f"{name}=")
        and not project.mentions(f"{name} =")
        and not passes_option(script, test, f"--{name}")
    )


def is_default_of_given(script: Script, node: ast.AST) -> bool:
    """Whether a place makes the default of a field that all settings files give.

    `field(default_factory=lambda: Arguments("out"))`, in a class of which all objects
    are made of mappings, or with the field: those files are meant that have all the
    keys without which there is no object.
    """
    field = _made_for(script, node)
    owner = script.index.parent(field) if field is not None else None
    project = script.index.project
    if field is None or not isinstance(owner, ast.ClassDef) or project is None:
        return False
    fields = [item for item in owner.body if isinstance(item, ast.AnnAssign)]
    name, position = dotted(field.target), fields.index(field)
    needed = [dotted(item.target) or "" for item in fields if item.value is None]
    files = project.having_keys(needed) if needed else []
    return (
        bool(name and files)
        and files == project.having_keys([*needed, name or ""])
        and all(
            any(k.arg in (name, None) for k in call.keywords)
            or len(call.args) > position
            for call in script.resolver.classes.constructors(owner)
        )
    )


def _made_for(script: Script, node: ast.AST) -> ast.AnnAssign | None:
    """The field whose default a function without parameters makes at a place."""
    above = script.index.ancestors(node)
    made = next((a for a in above if isinstance(a, ast.Lambda)), None)
    option = script.index.parent(made) if made is not None else None
    if not isinstance(option, ast.keyword) or option.arg not in _FACTORIES:
        return None
    call = script.index.parent(option)
    field = script.index.parent(call) if call is not None else None
    return field if isinstance(field, ast.AnnAssign) else None


def _fields(file: FileIndex, name: str) -> Iterator[tuple[ast.ClassDef, ast.AnnAssign]]:
    """`name: bool = False` in the classes of a file, each with its class."""
    for owner in file.classes.values():
        for item in owner.body:
            if isinstance(item, ast.AnnAssign) and dotted(item.target) == name:
                yield owner, item


def _is_off(field: ast.AnnAssign) -> bool:
    """`= False`, `= field(default=False)`."""
    value = field.value
    if isinstance(value, ast.Call):
        given = [k.value for k in value.keywords if k.arg == "default"]
        value = given[0] if given else None
    return isinstance(value, ast.Constant) and value.value is False
