"""Settings that name a class to build: `_target_` of hydra, `target` of others."""

from __future__ import annotations

import ast
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from gpulint.index.settings_file import Dialect

if TYPE_CHECKING:
    from gpulint.index.build import FileIndex
    from gpulint.index.project import Project

MAX_FILES = 2000
MAX_NAMES = 100_000  # of files of all kinds: a folder of data lies in the project
_SUFFIXES = (".yaml", ".yml")
_OTHERS = frozenset("node_modules venv site-packages __pycache__".split())
_TARGET = re.compile(
    r"""(?<!\w)(?:_target_|target)["']?[ \t]*:[ \t]*["']?([\w.]+\.\w+)"""
)
_found: WeakKeyDictionary[Project, dict[str, list[Path]]] = WeakKeyDictionary()


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


def target_mappings(project: Project, owner_qualified_name: str) -> list[ast.Dict]:
    """The mappings whose keys are the arguments of a class, in all settings files."""
    if project not in _found:
        _found[project] = _targets(project.root)
    found = []
    for target, paths in _found[project].items():
        if f".{owner_qualified_name}".endswith(f".{target}"):
            for path in paths:
                index = project.settings(path, Dialect.OMEGACONF)
                found += list(_arguments_in(index, target)) if index else []
    return found


def qualified_name(home: FileIndex, owner: ast.ClassDef) -> str:
    """The name of a class from the root of its project."""
    path = home.source.path
    root = home.project.root if home.project is not None else path.parent
    parts = list(path.relative_to(root).with_suffix("").parts)
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    return ".".join([*parts, owner.name])


def _targets(root: Path) -> dict[str, list[Path]]:
    """Files by the targets that their texts name."""
    found: dict[str, list[Path]] = defaultdict(list)
    for path in _settings_files(root):
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        for target in dict.fromkeys(_TARGET.findall(text)):
            found[target].append(path)
    return dict(found)


def _settings_files(root: Path) -> Iterator[Path]:
    """The YAML files below a folder, in order; none where there are too many."""
    found: list[Path] = []
    seen = 0
    for folder, inner, names in os.walk(root):
        seen += len(names)
        inner[:] = sorted(n for n in inner if n[0] != "." and n not in _OTHERS)
        found += [Path(folder, n) for n in sorted(names) if n.endswith(_SUFFIXES)]
        if len(found) > MAX_FILES or seen > MAX_NAMES:
            return
    yield from found


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
