"""Options that are fields of a class, of which nobody makes the object in sight."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index import FileIndex
from gpulint.index.walk import dotted
from gpulint.script.reaching.commands import passes_option

if TYPE_CHECKING:
    from gpulint.script.model import Script


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
