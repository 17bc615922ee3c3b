"""Settings that name a class to build: `_target_` of hydra, `target` of others."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index.settings_file import Dialect
from gpulint.index.words import its_target

if TYPE_CHECKING:
    from gpulint.index.build import FileIndex, Function
    from gpulint.index.project import Project


def settings_arguments(
    project: Project, owner_qualified_name: str, parameter: str
) -> list[ast.expr]:
    """What settings files pass for a parameter of a class's `__init__`.

    The class is named from the root of the project, `src.data.mnist.MNISTData`; a
    target may name it from a folder further in. The nodes stand in the trees of
    settings files.
    """
    found = []
    for mapping in target_mappings(project, owner_qualified_name):
        for key, value in zip(mapping.keys, mapping.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == parameter:
                found.append(value)
    return found


def is_given_beside(
    project: Project, owner_qualified_name: str, parameter: str
) -> bool:
    """Whether `instantiate(settings, pin_memory=…)` may give a class a parameter.

    Whatever its settings say, and its default.
    """
    if not project.mentions("instantiate(") or not project.targeting(
        owner_qualified_name
    ):
        return False
    given = re.compile(rf"instantiate\((?:[^()]|\([^()]*\))*\b{parameter}\s*=(?!=)")
    return any(map(given.search, project.texts("instantiate(")))


def target_mappings(project: Project, owner_qualified_name: str) -> list[ast.Dict]:
    """The mappings whose keys are the arguments of a class, in all settings files."""
    found = []
    for path, targets in project.targeting(owner_qualified_name):
        for target in targets:
            if its_target(owner_qualified_name, target):
                index = project.settings(path, Dialect.OMEGACONF)
                found += list(_arguments_in(index, target)) if index else []
    return found


def qualified_name(home: FileIndex, owner: ast.ClassDef | Function) -> str:
    """The name of a class or function from the root of its project."""
    path = home.source.path
    root = home.project.root if home.project is not None else path.parent
    parts = list(path.relative_to(root).with_suffix("").parts)
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    return ".".join([*parts, owner.name])


def _arguments_in(index: FileIndex, target: str) -> Iterator[ast.Dict]:
    for mapping in index.all(ast.Dict):
        pairs = zip(mapping.keys, mapping.values, strict=True)
        items = {k.value: v for k, v in pairs if isinstance(k, ast.Constant)}
        if _is(items.get("_target_"), target):
            yield mapping
        elif _is(items.get("target"), target):
            given = items.get("params")
            if isinstance(given, ast.Dict):
                yield given


def _is(node: ast.expr | None, text: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == text
