"""Tests of settings that every file which a program may merge into them decides."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING

from gpulint.index.loaded_settings import root_of
from gpulint.index.settings_file import Dialect
from gpulint.index.targets import item_of
from gpulint.index.walk import dotted
from gpulint.script.reaching.commands import says

if TYPE_CHECKING:
    from pathlib import Path

    from gpulint.index.project import Project
    from gpulint.script.model import Script

MAX_FILES = 100  # that are read for one test
_MERGES = "merge_from_file("  # of yacs and its copies


def is_merged_otherwise(script: Script, test: ast.expr, holds: bool) -> bool:
    """Whether no settings file has a value for which a test comes out so.

    `cfg.DATA.SAMPLER == "softmax"` and `cfg.MODEL.PRETRAINED`, in a project that merges
    files into settings whose names are in capitals. Each file that has the section, or
    lies beside one that has it, gives the value; nothing but the defaults sets it in
    code, and no known command names it.
    """
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, holds = test.operand, not holds
    asked, project = _asked(test), script.index.project
    if asked is None or project is None:
        return False
    read, answers = asked
    keys = _keys(read)
    if len(keys) < 2 or not project.mentions(_MERGES):
        return False
    if len(project.writing(keys[-1]) or ()) != 1:
        return False
    files = project.having_keys(keys)
    if not files or len(files) > MAX_FILES or not _are_all(project, keys, files):
        return False
    if says(script, ".".join(keys)):
        return False
    values = [_value(project, path, keys) for path in files]
    return all(
        isinstance(value, ast.Constant) and answers(value.value) is not holds
        for value in values
    )


def _asked(test: ast.expr) -> tuple[ast.Attribute, Callable[[object], bool]] | None:
    """What a test reads, and whether it holds for a value of that."""
    if isinstance(test, ast.Attribute):
        return test, bool
    if not isinstance(test, ast.Compare) or len(test.ops) > 1:
        return None
    read, compared = test.left, test.comparators[0]
    equal = isinstance(test.ops[0], ast.Eq)
    if not isinstance(read, ast.Attribute) or not isinstance(compared, ast.Constant):
        return None
    if not equal and not isinstance(test.ops[0], ast.NotEq):
        return None
    return read, lambda value: (value == compared.value) is equal


def _keys(read: ast.Attribute) -> list[str]:
    """`DATA`, `SAMPLER` of `self.cfg.DATA.SAMPLER`."""
    names = (dotted(read) or "").split(".")[1:]
    return [name for name in names if name.isupper()]


def _are_all(project: Project, keys: list[str], files: list[Path]) -> bool:
    """Whether all files that have the section, or lie beside these, are among them."""
    folders = dict.fromkeys(path.parent for path in files)
    beside = {
        path
        for folder in folders
        for suffix in dict.fromkeys(path.suffix for path in files)
        for path in project.in_folder(folder, f"*{suffix}")
    }
    return {*project.having_keys(keys[:1]), *beside} <= set(files)


def _value(project: Project, path: Path, keys: list[str]) -> ast.expr | None:
    index = project.settings(path, Dialect.SAFE)
    value = root_of(index) if index is not None else None
    for key in keys:
        value = item_of(value, key)
    return value
