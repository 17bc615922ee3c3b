"""The newest torch that can run a script: as declared, or as its imports need."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index import FileIndex
from gpulint.script.neighbours import run_together

if TYPE_CHECKING:
    from gpulint.script.model import Script

# Modules that are gone, and the last torch (or the torch of the last torchvision or
# torchtext) that may have them.
_GONE = {
    "torch.utils.ffi": (0, 4),
    "torchtext.legacy": (1, 11),
    "torchvision.models.utils": (1, 12),
    "torch._six": (1, 13),
    "torchvision.transforms.functional_tensor": (2, 1),
}


def runs_only_before(script: Script, release: tuple[int, int]) -> bool:
    """Whether no torch from a release on can run a script in its project."""
    newest = script.newest_torch
    if newest is not None and newest < release:
        return True
    gone = [name for name, last in _GONE.items() if last < release]
    return any(_is_named(script, name) for name in gone) and any(
        _needs(index, name) for index in run_together(script) for name in gone
    )


def _is_named(script: Script, module: str) -> bool:
    """Whether texts of the project have the names of a module; a cheap look."""
    parent, _, last = module.rpartition(".")
    ways = [[module], [f"from {parent} import", last]]
    project = script.index.project
    if project is None or not project.files:
        text = script.source.text
        return any(all(part in text for part in way) for way in ways)
    return any(all(map(project.mentions, way)) for way in ways)


def _needs(index: FileIndex, module: str) -> bool:
    """Whether a file cannot be imported without a module."""
    return any(
        name == module or name.startswith(f"{module}.") for name in _imports(index)
    )


def _imports(index: FileIndex) -> Iterator[str]:
    """What the import statements name that run whenever the file is imported."""
    for statement in index.tree.body:
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom) and not statement.level:
            yield statement.module or ""
            yield from (f"{statement.module}.{a.name}" for a in statement.names)
